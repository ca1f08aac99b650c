"""Releases on a board: uploaded, tested there, switched to atomically, and kept for a rollback."""
