"""Networks of Ultralytics (YOLOv5, v8, 11, 26 and relatives), decoded by the metadata in their files."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from edgedeploy.documents import Record, faults
from edgedeploy.errors import ModelError
from edgedeploy.heads import Head
from edgedeploy.tensors import TensorSpec, shown
from edgedeploy.vision.classification import Classification
from edgedeploy.vision.decoder import Decoder, Described, Fitted, Fraction, Outputs, not_of_this_kind
from edgedeploy.vision.fits import Side
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.maps import Depth, Segmentation
from edgedeploy.vision.results import Detection
from edgedeploy.vision.ultralytics_heads import Boxes, Form, Masks, Points, TurnedBoxes

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


class Ultralytics(Decoder):
    """What a network's task and the shapes of its outputs tell; the values are those of Ultralytics' `predict`.

    Attributes:
        task: what the network does; what its file says unless given, else what its outputs look like.
        threshold: what scores must exceed to be reported.
        iou_threshold: the largest intersection over union of two results, of networks that leave the choice to
            others.
        suppression: `class_aware`, a box suppresses only those of its own class; or `agnostic`, of any.
        most: how many results there are at most.
        top: how many classes of a whole image are reported.
    """

    kind: Literal["ultralytics"]
    task: Task | None = None
    threshold: Fraction = 0.25
    iou_threshold: Fraction = 0.7
    suppression: Literal["agnostic", "class_aware"] = "class_aware"
    most: Annotated[int, Field(gt=0)] = 300
    top: Annotated[int, Field(gt=0)] = 5

    def size_of(self, metadata: Mapping[str, str]) -> tuple[int, int] | None:
        """What the exporter wrote, rounded up to multiples of the stride as it does it itself."""
        description = Description.of(metadata)
        if description.imgsz is None:
            return None
        height, width = (-(-side // description.stride) * description.stride for side in description.imgsz)
        return height, width

    def fitted(self, network: Described) -> Fitted:
        """The decoder of the network's task, how its images are prepared, and the names of its classes."""
        description = Description.of(network.metadata)
        task = self.task or description.task or _task_of(network.results)
        if task == "classify":
            return Fitted(Classification(kind="classification", top=self.top), "cover", description.names)
        if task == "semantic":
            return Fitted(Segmentation(kind="segmentation"), "letterbox", description.names)
        if task == "depth":
            return Fitted(Depth(kind="depth"), "fill")
        return Fitted(self._detector(task, description, network.results), "letterbox", description.names)

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """As what the outputs look like."""
        specs = [TensorSpec(name=name, shape=list(each.shape), dtype=str(each.dtype)) for name, each in outputs.items()]
        return self.fitted(_Undescribed(specs)).decoder.decode(outputs, frame, labels)

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
            "threshold": self.threshold,
            "iou_threshold": self.iou_threshold,
            "suppression": self.suppression,
            "most": self.most,
            "output": tables[0].name,
            "form": _form(tables[0], extras, description),
            "extras": extras,
        }
        if task == "segment":
            return Masks(**fields, prototypes=prototypes[0].name)
        if task == "pose":
            return Points(**fields, shape=description.kpt_shape)
        return TurnedBoxes(**fields) if task == "obb" else Boxes(**fields)


@dataclass(frozen=True)
class _Undescribed:
    """A network that says nothing of itself."""

    results: Sequence[TensorSpec]
    heads: Sequence[Head] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


def _task_of(outputs: Sequence[TensorSpec]) -> Task:
    """The task of a network whose file does not say it."""
    ranks = [len(spec.shape) for spec in outputs]
    if 3 in ranks:
        return "segment" if 4 in ranks else "detect"
    return "classify"


def _form(table: TensorSpec, extras: int, description: Description) -> Form:
    """How an output of rank 3 is laid out: told by its shape, and by how many classes the file names."""
    _, rows, columns = table.shape
    classes = len(description.names)
    # YOLOv5's own exporter writes no task; its networks of one class have as many values as those that choose.
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
