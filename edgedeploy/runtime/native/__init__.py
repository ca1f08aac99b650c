"""C sources that become a part of each network's library."""

from pathlib import Path

THREAD_POOL = Path(__file__).with_name("thread_pool.c")

# The function of a network's library that says with how many threads it runs.
SET_THREADS = "edgedeploy_set_threads"
