"""Writes which wheels of other engines `bench --board` brings to boards, by what pip says of the package index.

Of each engine it takes the version that is installed here, which is what boards are measured with, and for each Python
the newest NumPy. What an index says once is what counts from then on: a wheel of another SHA-256 is refused.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import yaml

from edgedeploy.benchmarking.board_engines import ARCHITECTURES
from edgedeploy.benchmarking.engine_program import NAMES
from edgedeploy.benchmarking.engines import find_engine
from edgedeploy.benchmarking.wheels import PINS, Target
from edgedeploy.zoo.entry import WheelFile

# Of the systems that boards have: Debian 11 to 13, Ubuntu 20.04 to 24.04.
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
# That ncnn's published times are compared with (benchmarks/published.py).
FURTHER = ("ncnn==1.0.20230517",)


def main() -> None:
    """Ask pip for each engine, architecture and Python."""
    engines = map(find_engine, NAMES)
    wanted = ["numpy", *FURTHER, *(f"{engine.distribution}=={engine.version()}" for engine in engines)]
    pins = sorted(
        {pin for name in wanted for pin in _pinned(name)}, key=lambda pin: (pin.name.lower(), pin.filename or "")
    )
    text = yaml.safe_dump([pin.model_dump() for pin in pins], sort_keys=False, width=200)
    PINS.write_text(f"# Written by scripts/pin_wheels.py.\nwheels:\n{text}", encoding="utf-8")


def _pinned(requirement: str) -> Iterator[WheelFile]:
    for architecture in sorted({*ARCHITECTURES.values()}):
        for python in PYTHONS:
            command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report=-", "--no-deps"]
            command += ["--ignore-installed", "--only-binary=:all:", "--target=unused", requirement]
            done = subprocess.run(
                [*command, *Target(architecture, python).pip_options], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                [found] = json.loads(done.stdout)["install"]
                filename = found["download_info"]["url"].rpartition("/")[2]
                sha256 = found["download_info"]["archive_info"]["hashes"]["sha256"]
                named = found["metadata"]
                yield WheelFile(name=named["name"], version=named["version"], filename=filename, sha256=sha256)


if __name__ == "__main__":
    main()
