"""Measuring networks against other inference engines: all engines in turn, in one run, on equal terms."""

# How many inferences are timed on a board's device by default.
RUNS_ON_DEVICES = 600
