"""What Ultralytics' exporters write into an ONNX file: names of classes, task, stride, size of images."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from edgedeploy.documents import Record, faults
from edgedeploy.errors import ModelError
from edgedeploy.vision.page import Side

Task = Literal["detect", "segment", "pose", "obb", "classify", "semantic", "depth"]

# A network has as many values for each place as it has classes: far more than any is trained for.
_MOST_CLASSES = 1 << 16

# A value is text as Python's str() writes it. Outside of its strings there is nothing but this: sums, calls and
# operators, which can exhaust the parser's stack, are none of it. Python's tokeniser bounds how deep brackets go.
_STRING = re.compile(r"""'(?:[^'\\]|\\.?)*'?|"(?:[^"\\]|\\.?)*"?""", re.DOTALL)
_PLAIN = re.compile(r"[\s\w.,:{}\[\]()]*")


class Description(Record):
    """What a file says of its network; what it does not say is as in networks trained on COCO.

    Attributes:
        task: what the network does; None where the file does not say it, as those of YOLOv5's own exporter.
        names: the names of the classes; empty if the file has none.
        stride: the sides of images are its multiples.
        imgsz: height and width of images, in pixels.
        kpt_shape: how many points each person or thing has, and values of each: x, y and perhaps a score.
    """

    task: Task | None = None
    names: list[str] = []
    stride: Annotated[int, Field(gt=0, le=4096)] = 32
    imgsz: tuple[Side, Side] | None = None
    kpt_shape: tuple[Annotated[int, Field(gt=0, le=4096)], Literal[2, 3]] = (17, 3)

    @field_validator("names", mode="before")
    @classmethod
    def _in_order(cls, names: Any) -> Any:
        """A mapping from class numbers to names as a list; a number stands for a name that is missing."""
        if not isinstance(names, dict):
            return names
        if not all(type(number) is int and 0 <= number < _MOST_CLASSES for number in names):
            raise ValueError(f"the numbers of classes are whole numbers from 0 to {_MOST_CLASSES - 1}")
        return [names.get(number, str(number)) for number in range(max(names, default=-1) + 1)]

    @field_validator("imgsz", mode="before")
    @classmethod
    def _of_both_sides(cls, size: Any) -> Any:
        return (size, size) if isinstance(size, int) else size

    @staticmethod
    def of(metadata: Mapping[str, str]) -> Description:
        """What entries by key say, each as Python writes such a value."""
        fields = {key: _value(key, text) for key, text in metadata.items() if key in Description.model_fields}
        try:
            return Description.model_validate(fields)
        except ValidationError as error:
            _, field, said = next(faults(error))
            raise _not_ultralytics(field, said) from error


def _value(key: str, text: str) -> Any:
    """The value that a text stands for; words without quotes are texts."""
    if re.fullmatch(r"[a-z]+", text):
        return text
    try:
        if _PLAIN.fullmatch(_STRING.sub("", text)):
            return ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass  # all that literal_eval raises for texts
    raise _not_ultralytics(key, "it is no plain value of Python's")


def _not_ultralytics(key: str, why: str) -> ModelError:
    return ModelError(
        f"the entry {key!r} of the network's metadata cannot be read",
        why=why,
        hints=["export the network again: yolo export model=FILE.pt format=onnx"],
    )
