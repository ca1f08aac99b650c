"""How a package checks itself: inputs, what another program makes of them, and the comparison with it."""
