"""What describes a network: a `.param` file, one line for each layer, and perhaps a `metadata.yaml`.

    7767517
    3 3
    Input        input 0 1 data 0=4 1=4 2=1
    InnerProduct ip    1 1 data fc 0=10 1=1 2=160
    Softmax      prob  1 1 fc prob 0=0

After the number by which files are known come the counts of layers and blobs, then for each layer its type, name,
counts of inputs and outputs, the blobs that it reads and writes, and parameters by number; `-23303=2,0.5,1.0` is a list
of two for parameter 3, and so is `3=0.5,1.0`. Described by ncnn's documentation, "param and model file structure".
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from edgedeploy.base.documents import read_document
from edgedeploy.errors import ConfigurationError, ModelError
from edgedeploy.model.metadata import MOST_CHARACTERS, kept

Number = int | float
Value = Number | str | list[Number | str]
Default = bool | int | float | tuple[int, ...]
Choice = TypeVar("Choice")

# ncnn's layers have 32 parameters at most; those from 23300 on below zero are lists.
_PARAMETERS = 32
_LISTS = -23300

_LARGEST = 2**31

_INTEGER = re.compile(r"[+-]?\d{1,10}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class NcnnLayer:
    """One line."""

    path: Path
    line: int
    kind: str  # ncnn's name of the operation
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    parameters: Mapping[int, Value]  # by their numbers in ncnn's documentation, "operators"

    def error(self, why: str, *hints: str) -> ModelError:
        """The error that this layer cannot be imported."""
        return ModelError(
            f"{self.path}, line {self.line}: {self.kind} layer {self.name!r} cannot be imported", why=why, hints=hints
        )

    def integer(self, number: int, default: int = 0) -> int:
        """A parameter that is a whole number."""
        value = self.parameters.get(number, default)
        if isinstance(value, (str, list)) or value != int(value) or abs(value) > _LARGEST:
            raise self.error(f"parameter {number} is {value!r} and should be a whole number of 32 bits")
        return int(value)

    def one_of(self, number: int, what: str, choices: Sequence[Choice]) -> Choice:
        """The choice that a parameter numbers from 0, such as an operation."""
        value = self.integer(number)
        if not 0 <= value < len(choices):
            raise self.error(f"{what} {value} (parameter {number}) is not known")
        return choices[value]

    def number(self, number: int, default: float = 0.0) -> float:
        """A parameter that is a number."""
        value = self.parameters.get(number, default)
        if isinstance(value, (str, list)):
            raise self.error(f"parameter {number} is {value!r} and should be a number")
        return float(value)

    def value(self, number: int, default: Default) -> Default | list[int]:
        """A parameter of the kind of its default; a tuple stands for a list of whole numbers."""
        if isinstance(default, tuple):
            return self.integers(number)
        if isinstance(default, float):
            return self.number(number, default)
        return type(default)(self.integer(number, default))

    def numbers(self, number: int) -> list[float]:
        """A parameter that is a list of numbers, empty by default."""
        value = self.parameters.get(number, [])
        values = value if isinstance(value, list) else [value]
        found = [float(each) for each in values if not isinstance(each, str)]
        if len(found) < len(values):
            raise self.error(f"parameter {number} should be a list of numbers")
        return found

    def integers(self, number: int) -> list[int]:
        """A parameter that is a list of whole numbers, empty by default."""
        values = self.numbers(number)
        if any(value != int(value) or abs(value) > _LARGEST for value in values):
            raise self.error(f"parameter {number} should be a list of whole numbers of 32 bits")
        return [int(value) for value in values]


def read_layers(path: Path, content: bytes) -> list[NcnnLayer]:
    """The layers in the content of a file, in the order in which they run; `path` is for messages."""
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is damaged", why=f"it is not a text: {error}") from error
    numbered = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
    counts = numbered[1][1] if len(numbered) > 1 else []
    if len(counts) != 2 or not all(_INTEGER.fullmatch(count) for count in counts):
        raise ModelError(f"{path} is damaged", why="its second line should be the counts of layers and blobs")
    layers = [_layer(path, number, words) for number, words in numbered[2:]]
    written: set[str] = set()
    for layer in layers:
        for name in layer.inputs:
            if name not in written:
                raise layer.error(f"it reads blob {name!r}, which no layer before it writes")
        for name in layer.outputs:
            if name in written:
                raise layer.error(f"it writes blob {name!r}, which was written before")
            written.add(name)
    stated_layers, stated_blobs = map(int, counts)
    if stated_layers != len(layers) or stated_blobs < len(written):  # ncnn takes more blobs than there are
        raise ModelError(
            f"{path} is not complete",
            why=f"it states {stated_layers} layers and {stated_blobs} blobs, and has {len(layers)} and {len(written)}",
            hints=["check the file's size and checksum", "correct the counts in its second line if it was edited"],
        )
    return layers


def _layer(path: Path, number: int, words: list[str]) -> NcnnLayer:
    counts = words[2:4]
    if len(counts) < 2 or not all(count.isdecimal() and _INTEGER.fullmatch(count) for count in counts):
        raise ModelError(
            f"{path}, line {number}: this is not a layer",
            why="it should begin with type, name, and the counts of inputs and outputs",
        )
    inputs, outputs = map(int, counts)
    blobs = words[4 : 4 + inputs + outputs]
    if len(blobs) < inputs + outputs:
        raise ModelError(
            f"{path}, line {number}: this layer is not complete",
            why=f"it should name {inputs + outputs} blobs and names {len(blobs)}",
        )
    parameters: dict[int, Value] = {}
    for word in words[4 + len(blobs) :]:
        key, value = _parameter(path, number, word)
        if key in parameters:
            raise ModelError(f"{path}, line {number}: parameter {key} is given twice")
        parameters[key] = value
    return NcnnLayer(path, number, words[0], words[1], blobs[:inputs], blobs[inputs:], parameters)


def _parameter(path: Path, line: int, word: str) -> tuple[int, Value]:
    key, _, text = word.partition("=")
    number = int(key) if _INTEGER.fullmatch(key) else -1
    try:
        if number <= _LISTS:
            number = _LISTS - number
            count, *texts = text.split(",")
            if not _INTEGER.fullmatch(count) or int(count) != len(texts):
                raise ValueError(f"a list of {count} should follow and has {len(texts)}")
            value: Value = [_value(each) for each in texts]
        else:
            value = [_value(each) for each in text.split(",")] if "," in text else _value(text)
        if not 0 <= number < _PARAMETERS:
            raise ValueError(f"parameters go by numbers from 0 to {_PARAMETERS - 1}")
    except (ValueError, OverflowError) as error:
        shown = word if len(word) < 50 else word[:50] + "..."
        raise ModelError(f"{path}, line {line}: {shown!r} is not a parameter", why=str(error)) from error
    return number, value


def _value(text: str) -> Number | str:
    """A number that fits 32 bits, or a text."""
    if _INTEGER.fullmatch(text):
        value = int(text)
        if not -_LARGEST <= value < _LARGEST:
            raise OverflowError("it does not fit 32 bits")
        return value
    if not _NUMBER.fullmatch(text):
        return text
    real = float(text)
    struct.pack("<f", real)
    if math.isinf(real):
        raise OverflowError("it does not fit 32 bits")
    return real


_Count = Annotated[int, Field(gt=0, le=2**15)]


class Usage(BaseModel):
    """How a network is used, as Ultralytics writes it to `metadata.yaml`; None is not known.

    The fields are those of `vision.ultralytics_metadata.Description`, and the channels of images.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    task: str | None = None
    names: dict[int, str] | list[str] | None = None
    stride: _Count | None = None
    imgsz: _Count | Annotated[list[_Count], Field(min_length=2, max_length=2)] | None = None
    kpt_shape: list[int] | None = None
    end2end: bool | None = None
    channels: _Count = 3

    @staticmethod
    def of(path: Path) -> Usage:
        """Read a file, which may be empty."""
        try:
            if path.stat().st_size > MOST_CHARACTERS:
                raise ConfigurationError(f"{path} is too large", why=f"it has more than {MOST_CHARACTERS:,} bytes")
            return read_document(path, Usage) if path.stat().st_size else Usage()
        except (OSError, ConfigurationError) as error:
            what, why = (error.what, error.why) if isinstance(error, ConfigurationError) else (str(error), None)
            raise ModelError(
                what, why=why, hints=["export the network again, or remove that file, which only describes its use"]
            ) from error

    @property
    def shape(self) -> list[int] | None:
        """Of the input, an image."""
        sides = [self.imgsz] * 2 if isinstance(self.imgsz, int) else self.imgsz
        return [1, self.channels, *sides] if sides else None

    def entries(self) -> dict[str, str]:
        """The entries that files of other formats have."""
        return kept((key, str(value)) for key, value in self.model_dump(exclude_unset=True).items())
