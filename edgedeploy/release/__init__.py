"""Releases on a board: uploaded, tested there, switched to atomically, and stored for a rollback."""
