"""Tuning records: the trials of candidates on a board, stored for builds, tuning and reports."""
