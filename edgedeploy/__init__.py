"""edgedeploy: from a trained neural network to a small board, in one command line."""

import os

__version__ = "0.2.0"

# onnxruntime 1.31 writes an id of this device and looks for its maker's server as soon as it is imported; a call
# afterwards comes too late. Processes that are started from here inherit the variable.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
