"""TVM's RPC: a tracker on this machine, and servers on boards that it hands out."""
