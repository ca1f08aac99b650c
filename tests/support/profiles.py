"""Profiles of boards, and entries of the zoo, that tests write."""

import hashlib
from pathlib import Path
from typing import Any

import yaml

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.target.board import Board, load_board
from support.commands import put


def write_profile(folder: Path, base: str, **fields: object) -> str:
    """A profile, `mine`, that differs from another in some fields; None takes one away. Gives its path."""
    stated = yaml.safe_load((builtin_folder() / "boards" / f"{base}.yaml").read_text()) | fields
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in stated.items() if value is not None}))
    return str(path)


def write_entry(entry: str, content: bytes, **file: object) -> Path:
    """An entry of the working folder for a network in a file of this content; `file` says where that is from."""
    stated = {"name": f"{entry}.onnx", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content), **file}
    about = {"task": "classification", "description": "a toy", "licence": "none stated", "files": [stated]}
    written = yaml.safe_dump({**about, "input": {"name": "data", "shape": [1, 3, 8, 8]}})
    return put(Path("models", f"{entry}.yaml"), written)


def x86(cpu: str, bits: int) -> Board:
    """A board with a processor that LLVM knows by a name, and vectors of so many bits."""
    registers = 32 if bits == 512 else 16
    fields: dict[str, Any] = {"triple": "x86_64-unknown-linux-gnu", "cpu": cpu, "features": []}
    return Board.model_validate(
        {**load_board("nuc-opencl").model_dump(), **fields, "vector": {"bits": bits, "registers": registers}}
    )
