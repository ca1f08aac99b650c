"""edgedeploy: from a trained neural network to a small board, in one command line."""

__version__ = "0.1.0"
