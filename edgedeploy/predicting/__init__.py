"""Cycles of networks on a board's core, predicted without the board: recorded under QEMU, summed up by llvm-mca.

`recording.py` runs a package's own code under emulation with a plugin (`native/`, built by `tools.py`); `record.py`
reads the result, finds the function of each part and takes samples; `tools.py` calls LLVM, and `prediction.py` sums
up. `peers.py` does the same with other engines.
"""
