"""Cycles of networks on a board's core, predicted without the board: recorded under QEMU, summed up by llvm-mca.

`recording.py` runs a package's own code under emulation with a plugin (`native/`, built by `plugin.py`); `record.py`
reads what it wrote, `ownership.py` says which function of the network each part belongs to, `sampling.py` takes windows
of it, `mca.py` has LLVM say their cycles, `prediction.py` sums up. `peers.py` does the same with other engines.
"""
