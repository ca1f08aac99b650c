"""Run a built network, and measure how long it takes."""
