"""Networks as systemd services of a board."""
