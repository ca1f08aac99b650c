"""Reading networks from the formats users hold, one module per format."""
