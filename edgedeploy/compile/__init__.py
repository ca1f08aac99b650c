"""From an imported network to machine code for a board."""
