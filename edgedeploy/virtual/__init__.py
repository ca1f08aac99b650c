"""Virtual boards: a Debian userland of a board's architecture, with SSH as on a real board."""
