"""Measures networks that people deploy today beside onnxruntime, and writes docs/networks.md.

    python benchmarks/sweep.py export  [--only PATTERN] [--folder FOLDER]
    python benchmarks/sweep.py measure [--only PATTERN] [--folder FOLDER] [--threads N] [--json FILE [--resume]]
                                       [--output FILE [--keep]]

`sweep_networks.yaml` lists the networks. `export` writes them as files, with random weights; it needs torch,
torchvision, timm, ultralytics, transformers, onnxscript and litert-torch, for CPUs. It goes on where it was ended.
`measure` needs edgedeploy alone, and PyTorch to read `.pt2` files. Each network has a process of its own.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from sweep_networks import read_cases

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Parse the command line, and do as it says."""
    parser = argparse.ArgumentParser(description="Measure networks that people deploy today.")
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write the networks' files, with PyTorch")
    measure = commands.add_parser("measure", help="build and measure them")
    for command in (export, measure):
        command.add_argument("--only", metavar="PATTERN", default="", help="a regular expression that names match")
        command.add_argument("--folder", type=Path, default=ROOT / "dist" / "sweep", help="of the files (dist/sweep)")
    measure.add_argument("--processes", type=int, default=1, help="how many networks at once (1)")
    measure.add_argument("--rounds", type=int, default=9, help="how often each engine has its turn (9)")
    measure.add_argument("--threads", type=int, default=2, help="measured on one thread and on so many (2)")
    measure.add_argument("--json", type=Path, help="the results of all networks, written as they come")
    measure.add_argument("--resume", action="store_true", help="do not run again what the file of --json has")
    measure.add_argument("--output", type=Path, help="write the page, such as docs/networks.md")
    measure.add_argument("--keep", action="store_true", help="keep the rows of the page that have no newer result")
    measure.add_argument("--remark", help="a sentence about the machine's state, for the page")
    arguments = parser.parse_args()
    chosen = [case for case in read_cases() if re.search(arguments.only, case.name)]
    if arguments.command == "export":
        from sweep_export import export as write

        write(chosen, arguments.folder)
        return
    from sweep_measure import measure_all

    measure_all(chosen, arguments)


if __name__ == "__main__":
    sys.exit(main())
