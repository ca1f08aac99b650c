"""Virtual boards: a Debian userland of a board's architecture, reached over SSH as a real board is."""
