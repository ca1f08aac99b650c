"""Boards over SSH: addresses, host keys, facts about boards, and commands on them."""

LOOPBACK = "127.0.0.1"
