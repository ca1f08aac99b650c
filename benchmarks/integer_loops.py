"""What LLVM's models predict for tiles of layers of bytes on ARM cores, beside the same layers in float."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
from arm_loops import look_at_tiles
from layers import quantised, read_layers

from edgedeploy.target.board import load_board

# The boards whose cores are looked at, and the cores' names.
CORES = {"rpi4": "Cortex-A72", "rpi3": "Cortex-A53", "rpi5": "Cortex-A76"}

# Where no loop over tiles was found, or Winograd's form is taken, whose loops are of several kinds.
NONE = "-"

# Accesses to the stack in a cycle; fewer are addresses that are kept there from tile to tile.
SPILLS = 0.02


def table() -> list[list[str]]:
    """A row for each layer of `layers.yaml`: products in a cycle in bytes, and in brackets in float, by core.

    Tiles are whole: with the biases before sums, and what makes bytes of them, or activations, after these. Where a
    layer has several loops over tiles, the one that multiplies most counts. A star says that it spills.
    """
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        paths = list(_written(Path(folder)))
        rates = {board: _rates(board, paths) for board in CORES}
    rows = [["layer", *CORES.values()]]
    for name in read_layers():
        cells = []
        for found in rates.values():
            of_bytes, of_floats = (found.get(_file(name, kind), NONE) for kind in ("int8", "float"))
            cells.append(f"{of_bytes} ({of_floats})")
        rows.append([name, *cells])
    return rows


def _file(layer: str, kind: str) -> str:
    return f"{layer}, {kind}.onnx"


def _written(folder: Path) -> Iterator[Path]:
    """The layers as files, in both kinds."""
    for name, layer in read_layers().items():
        model = layer.model()
        for kind, each in (("float", model), ("int8", quantised(model))):
            path = folder / _file(name, kind)
            onnx.save(each, path)
            yield path


def _rates(board: str, paths: list[Path]) -> dict[str, str]:
    """Products in a cycle of the tiles that multiply most, by file, with a star where they spill."""
    profile = load_board(board)
    peak = profile.vector.bits / 32 * profile.fma.per_cycle
    found: dict[str, tuple[float, float, bool]] = {}
    for record in look_at_tiles(board, paths):
        if record.network.endswith(_file("", "float")) and record.products_per_cycle > peak:
            continue  # a loop whose inner one could not be counted
        spills = record.stack_accesses > SPILLS * record.cycles
        rate = record.products, record.products_per_cycle, spills
        found[record.network] = max(found.get(record.network, rate), rate)
    return {name: f"{rate:.3g}{'*' if spills else ''}" for name, (_, rate, spills) in found.items()}
