"""The networks of the sweep, as `sweep_networks.yaml` lists them, and the files that their exports are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# By exporter, the suffix of the file that it writes. Where a network has several, the first ones that are ONNX are
# what onnxruntime runs.
LEGACY = "legacy"
SUFFIXES = {LEGACY: ".onnx", "dynamo": ".onnx", "pt2": ".pt2", "tflite": ".tflite"}


@dataclass(frozen=True)
class Input:
    """An input's shape, and what its values are below if it holds indices; else it holds floats."""

    shape: tuple[int, ...]
    below: int | None = None


@dataclass(frozen=True)
class Network:
    """A network as a package of Python has it.

    Attributes:
        family: the package.
        name: the package's name of it.
        inputs: in order.
        exporters: what writes it as files, of `SUFFIXES`.
        options: what it is made with, as its family understands them.
    """

    family: str
    name: str
    inputs: Sequence[Input] = (Input((1, 3, 224, 224)),)
    exporters: Sequence[str] = (LEGACY,)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A network as one exporter writes it."""

    network: Network
    exporter: str

    @property
    def name(self) -> str:
        """What tables, files and patterns of the command line call it."""
        return f"{self.network.family}.{self.network.name}.{self.exporter}"

    def file(self, folder: Path) -> Path:
        """Its file."""
        return folder / f"{self.name}{SUFFIXES[self.exporter]}"

    def refusal(self, folder: Path) -> Path:
        """The file that says why its exporter refused it."""
        return folder / f"{self.name}.refused.txt"

    def onnx(self, folder: Path) -> Path | None:
        """The same network, with the same weights, as onnxruntime runs it: this file, or another exporter's."""
        exporters = [self.exporter, *self.network.exporters]
        files = [Case(self.network, each).file(folder) for each in exporters if SUFFIXES[each] == ".onnx"]
        return next((file for file in files if file.is_file()), None)


def read_cases() -> list[Case]:
    """All networks, each as all of its exporters write it."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return [
        Case(network, exporter)
        for family, networks in yaml.safe_load(text).items()
        for network in (_network(family, name, fields or {}) for name, fields in networks.items())
        for exporter in network.exporters
    ]


def _network(family: str, name: str, fields: dict[str, Any]) -> Network:
    if "inputs" in fields:
        given = [each if isinstance(each, dict) else {"shape": each} for each in fields.pop("inputs")]
        fields["inputs"] = [Input(tuple(each["shape"]), each.get("below")) for each in given]
    return Network(family, name, **fields)
