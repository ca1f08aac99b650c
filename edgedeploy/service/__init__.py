"""A network on a board as a service of systemd: `unit.py` writes the unit, `board.py` installs it and asks for it."""
