"""C sources that are linked into each network's library, or into libraries that tuning measures."""

from pathlib import Path

GUARDS = Path(__file__).with_name("guards.c")
THREAD_POOL = Path(__file__).with_name("thread_pool.c")
MEASURING = Path(__file__).with_name("measuring.c")

INPUT_ERROR = "InputError"  # the kind of errors that guards raise
SET_THREADS = "edgedeploy_set_threads"  # a library's function that sets the number of threads

# The first function of a measured library registers the second one with TVM's time evaluator, which calls it before
# each measurement. Arguments: the number of threads, and how many bytes of other memory each of them reads then.
PREPARE_MEASURING = "edgedeploy_prepare_measuring"
BEFORE_EACH = "edgedeploy.before_each"
