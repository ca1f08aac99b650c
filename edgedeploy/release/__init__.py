"""Releases on a board: put there whole, checked there, switched to at once, kept for going back."""
