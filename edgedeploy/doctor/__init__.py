"""Examine this machine and a board: can networks be built, pushed and run, and if not, what to do."""
