"""Writes an architecture as an ONNX file: `python benchmarks/networks/architectures.py yolox-nano yolox-nano.onnx`.

The networks are those of edgedeploy.frontends.architectures, with their seeded random weights: other programs can then
be measured on the same file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from edgedeploy.frontends.architectures import build
from edgedeploy.zoo.entry import Architecture


def main() -> None:
    """Write the network that the command line asks for."""
    parser = argparse.ArgumentParser(description="Write an architecture with seeded random weights as ONNX.")
    parser.add_argument("name", choices=get_args(Architecture))
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    arguments.path.write_bytes(build(arguments.name).model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main()
