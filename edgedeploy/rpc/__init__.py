"""TVM's RPC: a tracker on this machine, and servers on boards that it hands out."""

# The first port that TVM's own programs look for a tracker at.
DEFAULT_PORT = 9190
