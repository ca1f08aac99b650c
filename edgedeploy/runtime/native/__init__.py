"""C sources that become a part of each network's library, or of libraries that are measured when tuning.

They are given to the linker's driver as they are; `tvm.h`, which they share, is found beside them.
"""

from pathlib import Path

GUARDS = Path(__file__).with_name("guards.c")
THREAD_POOL = Path(__file__).with_name("thread_pool.c")
MEASURING = Path(__file__).with_name("measuring.c")

# The kind of the errors that guards raise.
INPUT_ERROR = "InputError"

# The function of a library that says with how many threads it runs.
SET_THREADS = "edgedeploy_set_threads"

# The function of a library that is measured which makes the other one known to TVM's time evaluator: the first takes
# the number of threads, and how many bytes of other memory each of them is to read; the second is called before each
# time that is taken.
PREPARE_MEASURING = "edgedeploy_prepare_measuring"
BEFORE_EACH = "edgedeploy.before_each"
