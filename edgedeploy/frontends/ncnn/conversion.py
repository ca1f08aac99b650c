"""From ncnn's layers to a model in ONNX's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.errors import InputError, ModelError, OpenShapeError
from edgedeploy.frontends.format import Shapes, check_given_shapes

# The modules of translators register them.
from edgedeploy.frontends.ncnn import (  # noqa: F401
    convolutions,
    elementwise,
    matrices,
    normalisation,
    pooling,
    reshaping,
)
from edgedeploy.frontends.ncnn.step import Blob, NcnnGraph, Step, check_known, translate
from edgedeploy.frontends.ncnn.text import NcnnLayer
from edgedeploy.frontends.ncnn.weights import Weights

if TYPE_CHECKING:
    import onnx

_INPUT_PARAMETERS = {0, 1, 2, 11, 30, 31}


def converted(
    path: Path,
    layers: Sequence[NcnnLayer],
    weights: Weights,
    shapes: Shapes,
    otherwise: Sequence[int] | None = None,
) -> onnx.ModelProto:
    """The model, with ncnn's names of blobs.

    Its outputs are the blobs that no layer reads, in the order in which they are written. A copy that nobody reads
    while another copy of the same blob is read (Split) is none.

    Args:
        path: the network's file, for messages.
        layers: in the order in which they run.
        weights: where theirs come from.
        shapes: of inputs, with a batch of one, for inputs whose layer states none or to replace it.
        otherwise: the shape of inputs whose layer states none, and that are given none.

    Raises:
        ModelError: a layer cannot be translated, or there is no output.
        InputError: a shape was given for no input, or does not fit.
        OpenShapeError: a shape is missing.
    """
    inputs = [layer for layer in layers if layer.kind == "Input"]
    for layer in layers:
        if layer.kind != "Input":
            check_known(layer)
    check_given_shapes(path, shapes, [name for layer in inputs for name in layer.outputs])
    outputs = _outputs(layers)
    if not outputs:
        raise ModelError(f"{path} has no output", why="every blob is read by a layer")
    graph = NcnnGraph(path.stem)
    blobs: dict[str, Blob] = {}
    for layer in layers:
        if layer.kind == "Input":
            name, shape = _input(layer, shapes, otherwise)
            blobs[name] = Blob(graph.input(name, [1, *shape]), shape)
            continue
        read = [blobs[name] for name in layer.inputs]
        written = translate(Step(layer, read, weights, graph))
        copied = {blob.value for blob in read}
        if any(blob.value not in copied for blob in written):
            graph.rename(layer.outputs)
            written = [replace(blob, value=name) for name, blob in zip(layer.outputs, written, strict=True)]
        for name, blob in zip(layer.outputs, written, strict=True):
            if blob.value != name and name in outputs:
                blob = replace(blob, value=graph.node("Identity", blob.value, name=name))
            blobs[name] = blob
    return graph.model(list(outputs))


def _outputs(layers: Sequence[NcnnLayer]) -> dict[str, None]:
    """The names of the network's outputs, in order."""
    read = {name for layer in layers for name in layer.inputs}
    found: dict[str, None] = {}
    for layer in layers:
        unread = [name for name in layer.outputs if name not in read]
        if layer.kind == "Input" or (layer.kind == "Split" and len(unread) < len(layer.outputs)):
            continue
        found.update(dict.fromkeys(unread))
    return found


def _input(layer: NcnnLayer, shapes: Shapes, otherwise: Sequence[int] | None) -> tuple[str, tuple[int, ...]]:
    """Name and shape of an input."""
    if len(layer.outputs) != 1 or layer.inputs or set(layer.parameters) - _INPUT_PARAMETERS:
        raise layer.error("an input writes one blob of one to four dimensions, and reads none")
    [name] = layer.outputs
    # Parameters are w, h, d, c; what is left out are outer dimensions, and 0 is an open size.
    stated = [layer.integer(number) for number in (2, 11, 1, 0) if number in layer.parameters]
    given = shapes.get(name)
    if given is None and stated and min(stated) > 0:
        given = [1, *stated]
    given = given or otherwise
    if given is None:
        raise OpenShapeError(
            f"{layer.path}: the file does not say how large input {name!r} is",
            input=name,
            hints=[f"give it a shape: --input-shape {name}:1,3,224,224, its channels, height and width after a 1"],
        )
    if not _fits(given, len(stated)):
        says = "x".join(map(str, stated)) if stated else "nothing"
        raise InputError(
            f"{layer.path}: the shape of input {name!r} does not fit",
            why=f"{','.join(map(str, given))} was given, the network says {says}, and there is one image at a time",
            hints=[f"write it as --input-shape {name}:1,3,224,224"],
        )
    return name, tuple(given[1:])


def _fits(shape: Sequence[int], rank: int) -> bool:
    """Whether a shape is one of a single image, of so many dimensions without the batch; 0 if that is open."""
    return 1 < len(shape) <= 5 and shape[0] == 1 and rank in (0, len(shape) - 1)
