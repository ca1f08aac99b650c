"""A network on a board as a systemd service: `unit.py` writes the unit, `board.py` installs and controls it."""
