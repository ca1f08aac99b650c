"""Records of a network that all stages share."""
