"""Sounds: where they come from, the networks that listen to them, and what these detect."""
