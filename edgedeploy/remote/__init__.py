"""Boards over SSH: where they are, whose host keys are trusted, what they are, and commands run on them."""

LOOPBACK = "127.0.0.1"
