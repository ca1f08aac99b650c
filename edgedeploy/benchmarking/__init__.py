"""Measuring networks against other inference engines: all engines in turn, in one run, on equal terms.

Every engine lives in a process of its own (`worker`), reads the same file, takes the same inputs and uses the
same number of threads. `measure` asks them in turn; `report` turns what they answered into tables.
"""

# How many inferences are timed on a board's device unless the caller says otherwise.
RUNS_ON_DEVICES = 600
