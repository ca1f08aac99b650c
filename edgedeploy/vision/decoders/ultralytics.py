"""Networks of Ultralytics (YOLOv5, v8, 11, 26 and relatives), decoded by the metadata in their files."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from edgedeploy.base.documents import Record, faults
from edgedeploy.errors import ModelError
from edgedeploy.model.tensors import TensorSpec, shown
from edgedeploy.vision.decoder import Decoder, Described, Fitted, Fraction, Outputs, not_of_this_kind
from edgedeploy.vision.decoders.classification import Classification
from edgedeploy.vision.decoders.maps import Depth, Segmentation
from edgedeploy.vision.decoders.ultralytics_heads import Boxes, Form, Masks, Points, TurnedBoxes
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.preprocess import Side
from edgedeploy.vision.results import Detection

Task = Literal["detect", "segment", "pose", "obb", "classify", "semantic", "depth"]

# A network has as many values for each place as it has classes: far more than any is trained for.
_MOST_CLASSES = 1 << 16

# A value is text as Python's str() writes it. Outside of strings only these characters occur: sums, calls and
# operators, which can exhaust the parser's stack, are refused. Python's tokeniser limits the depth of brackets.
_STRING = re.compile(r"""'(?:[^'\\]|\\.?)*'?|"(?:[^"\\]|\\.?)*"?""", re.DOTALL)
_PLAIN = re.compile(r"[\s\w.,:{}\[\]()]*")


class Description(Record):
    """The metadata in a network's file; the defaults are those of networks trained on COCO."""

    task: Task | None = None  # YOLOv5's own exporter states none
    names: list[str] = []
    stride: Annotated[int, Field(gt=0, le=4096)] = 32
    imgsz: Annotated[  # the sides of images: multiples of the stride
        tuple[Side, Side] | None, BeforeValidator(lambda side: (side, side) if isinstance(side, int) else side)
    ] = None
    # The number of points, and of values of each: x, y and perhaps a score.
    kpt_shape: tuple[Annotated[int, Field(gt=0, le=4096)], Literal[2, 3]] = (17, 3)

    @field_validator("names", mode="before")
    @classmethod
    def _in_order(cls, names: Any) -> Any:
        """A mapping from class numbers to names as a list; the number replaces a missing name."""
        if not isinstance(names, dict):
            return names
        if not all(type(number) is int and 0 <= number < _MOST_CLASSES for number in names):
            raise ValueError(f"the numbers of classes are whole numbers from 0 to {_MOST_CLASSES - 1}")
        return [names.get(number, str(number)) for number in range(max(names, default=-1) + 1)]

    @staticmethod
    def of(metadata: Mapping[str, str]) -> Description:
        """Parse metadata by key, each value as Python's str() writes it."""
        fields = {key: _value(key, text) for key, text in metadata.items() if key in Description.model_fields}
        try:
            return Description.model_validate(fields)
        except ValidationError as error:
            _, key, why = next(faults(error))
            raise _unreadable(key, why) from error


def _value(key: str, text: str) -> Any:
    """A Python literal; a word without quotes is a string."""
    if re.fullmatch(r"[a-z]+", text):
        return text
    try:
        if _PLAIN.fullmatch(_STRING.sub("", text)):
            return ast.literal_eval(text.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass  # all errors of literal_eval for text
    raise _unreadable(key, "it is not a plain Python value")


def _unreadable(key: str, why: str) -> ModelError:
    return ModelError(
        f"the entry {key!r} of the network's metadata cannot be read",
        why=why,
        hints=["export the network again: yolo export model=FILE.pt format=onnx"],
    )


class Ultralytics(Decoder):
    """The decoder that suits the network's task and the shapes of its outputs; the defaults are those of `predict`."""

    kind: Literal["ultralytics"]
    task: Task | None = None
    threshold: Fraction = 0.25
    iou_threshold: Fraction = 0.7
    suppression: Literal["agnostic", "class_aware"] = "class_aware"
    most: Annotated[int, Field(gt=0)] = 300
    top: Annotated[int, Field(gt=0)] = 5

    def size_of(self, metadata: Mapping[str, str]) -> tuple[int, int] | None:
        """The exporter's size, rounded up to multiples of the stride like there."""
        description = Description.of(metadata)
        if description.imgsz is None:
            return None
        height, width = (-(-side // description.stride) * description.stride for side in description.imgsz)
        return height, width

    def fitted(self, network: Described) -> Fitted:
        """The decoder of the network's task, how its images are prepared, and the names of its classes."""
        return self._fitted(Description.of(network.metadata), network.results)

    def _fitted(self, description: Description, outputs: Sequence[TensorSpec]) -> Fitted:
        task = self.task or description.task or _task_of(outputs)
        if task == "classify":
            return Fitted(Classification(kind="classification", top=self.top), "cover", description.names)
        if task == "semantic":
            return Fitted(Segmentation(kind="segmentation"), "letterbox", description.names)
        if task == "depth":
            return Fitted(Depth(kind="depth"), "fill")
        return Fitted(self._detector(task, description, outputs), "letterbox", description.names)

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """Decode by the shapes of the outputs alone."""
        specs = [TensorSpec(name=name, shape=list(each.shape), dtype=str(each.dtype)) for name, each in outputs.items()]
        return self._fitted(Description(), specs).decoder.decode(outputs, frame, labels)

    def _detector(self, task: Task, description: Description, outputs: Sequence[TensorSpec]) -> Boxes:
        tables = [spec for spec in outputs if len(spec.shape) == 3]
        prototypes = [spec for spec in outputs if len(spec.shape) == 4]
        if not tables or (task == "segment" and not prototypes):
            raise not_of_this_kind(
                f"its outputs are not those of the task {task}: "
                + ", ".join(f"{spec.name} {shown(spec.shape)}" for spec in outputs)
            )
        extras = {
            "segment": prototypes[0].shape[1] if prototypes else 0,
            "pose": math.prod(description.kpt_shape),
            "obb": 1,
        }.get(task, 0)
        fields: dict[str, Any] = {
            **self.model_dump(include={"threshold", "iou_threshold", "suppression", "most"}),
            "output": tables[0].name,
            "form": _form(tables[0], extras, description),
            "extras": extras,
        }
        if task == "segment":
            return Masks(**fields, prototypes=prototypes[0].name)
        if task == "pose":
            return Points(**fields, shape=description.kpt_shape)
        return TurnedBoxes(**fields) if task == "obb" else Boxes(**fields)


def _task_of(outputs: Sequence[TensorSpec]) -> Task:
    """The task of a network whose file does not state it."""
    ranks = [len(spec.shape) for spec in outputs]
    if 3 in ranks:
        return "segment" if 4 in ranks else "detect"
    return "classify"


def _form(table: TensorSpec, extras: int, description: Description) -> Form:
    """The layout of an output of rank 3, by its shape and the number of classes in the file."""
    _, rows, columns = table.shape
    classes = len(description.names)
    # YOLOv5's own exporter writes no task; its networks of one class have as many values as chosen boxes.
    chosen = columns == 6 + extras and not (classes == 1 and description.task is None)
    if chosen or (not classes and rows < columns):
        return "chosen" if chosen else "channels"
    if not classes or columns == 5 + classes + extras:
        return "objectness"
    if rows == 4 + classes + extras:
        return "channels"
    raise not_of_this_kind(
        f"its output {table.name!r} is {shown(table.shape)}, which does not suit {classes} classes and {extras} values "
        "beside them"
    )
