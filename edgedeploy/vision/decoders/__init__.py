"""Decoders: outputs of networks as results; `docs/data-files.md` describes their parameters."""
