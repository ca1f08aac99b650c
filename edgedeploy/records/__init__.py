"""Tuning records: the trials of candidates on a board, kept for builds, tuning and reports."""
