"""Decoders: outputs of networks as results."""
