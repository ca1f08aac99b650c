"""Everything that predictions for a board need: a core model, LLVM, and a QEMU with the plugin that records."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.files import digest_of
from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import UnsupportedError
from edgedeploy.predicting.mca import Llvm
from edgedeploy.target.board import BOARDS, Board, load_board
from edgedeploy.target.core_model import CoreModel
from edgedeploy.target.toolchain import c_compiler, link_shared
from edgedeploy.target.triples import architecture_of

NATIVE = Path(__file__).with_name("native")
_SOURCE, _LIBRARY = NATIVE / "recorder.c", "recorder.so"
_PLUGINS = FolderCache("plugins")

# The versions of QEMU that have version 1 of the plugin interface.
_OLDEST, _NEWEST = (6, 0), (8, 2)
_INSTALL = "apt-get install qemu-user"


def recorder(progress: Progress = SILENT) -> Path:
    """The plugin, built for this machine once."""
    here = load_board("local")
    key = key_of([c_compiler(here).identity, digest_of(sorted(NATIVE.iterdir()), NATIVE)])[:16]
    what = "building the recorder of instructions"
    return _PLUGINS.get_file(key, _LIBRARY, lambda path: link_shared([_SOURCE], path, here), what, progress)


def recording_emulator(board: Board) -> str:
    """The emulator of a board's programs, if it takes plugins."""
    name = f"qemu-{architecture_of(board.triple).qemu}"
    found = shutil.which(name)
    if found is None:
        raise UnsupportedError(
            f"there is no {name}, which runs and records the board's programs",
            why=f"{name}-static takes no plugins",
            hints=[_INSTALL],
        )
    match = re.search(r"version (\d+)\.(\d+)", capture([found, "--version"]).stdout)
    version = (int(match[1]), int(match[2])) if match else None
    if "-plugin" not in capture([found, "--help"]).stdout:
        raise UnsupportedError(
            f"{found} takes no plugins", why="it is linked statically, or was built without", hints=[_INSTALL]
        )
    if version is None or not _OLDEST <= version <= _NEWEST:
        stated = ".".join(map(str, version)) if version else "of an unknown version"
        raise UnsupportedError(
            f"{found} is QEMU {stated}",
            why="the recorder is written for the plugin interface of QEMU 6.0 to 8.2",
            hints=["Debian 12 has QEMU 7.2: apt-get install qemu-user"],
        )
    return found


@dataclass(frozen=True)
class Means:
    """The core model and LLVM's tools for a board."""

    core: CoreModel
    llvm: Llvm

    @property
    def name(self) -> str:
        """The model with LLVM's version: predictions of different ones cannot be compared."""
        return f"{self.core.llvm} of LLVM {self.llvm.version}"

    @classmethod
    def of(cls, name: str, board: Board) -> Means:
        """The means for a board called `name`. Call it before the network is built."""
        if board.core_model is None or board.accelerator:
            raise UnsupportedError(
                f"no cycles are predicted for board {name}",
                why=_why_not(board),
                hints=[f"name another board: {', '.join(predictable())}"],
            )
        recording_emulator(board)
        return cls(board.core_model, Llvm.found())


def predictable() -> list[str]:
    """The names of boards for which cycles are predicted."""
    return [name for name in BOARDS.names() if BOARDS.load(name).core_model]


def _why_not(board: Board) -> str:
    if board.accelerator:
        return "networks run on its device, not on the core"
    if board.family == "arm":
        # Of 13 independent `vmla.f32 q`, LLVM 19 starts two in a cycle on its Cortex-A72; of `fmla .4s`, one.
        return (
            "in 32-bit state LLVM's Cortex-A72 multiplies twice as many floats in a cycle as the core does, and it has "
            "no model of Cortex-A7 or Cortex-A53"
        )
    return f"no model of {board.cpu} was confirmed by published times: its profile states no `core_model`"
