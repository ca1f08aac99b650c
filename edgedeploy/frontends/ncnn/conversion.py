"""From ncnn's layers to a model in ONNX's terms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.errors import ModelError, OpenShapeError
from edgedeploy.frontends.format import Shapes, check_given_shapes, unfit_shape
from edgedeploy.frontends.graph import Value

# The modules of translators register them.
from edgedeploy.frontends.ncnn import elementwise, matrices, normalisation, reshaping, windows  # noqa: F401
from edgedeploy.frontends.ncnn.graph import NcnnGraph, check_known, translate
from edgedeploy.frontends.ncnn.text import NcnnLayer
from edgedeploy.frontends.ncnn.weights import Weights

if TYPE_CHECKING:
    import onnx

_INPUT_PARAMETERS = {0, 1, 2, 11, 30, 31}


def converted(
    path: Path, layers: Sequence[NcnnLayer], weights: Weights, shapes: Shapes, default: Sequence[int] | None = None
) -> onnx.ModelProto:
    """The model, with ncnn's names of blobs.

    Its outputs are the blobs that no layer reads, in the order in which they are written; of the copies of a blob
    (Split), unread ones are outputs only if all are.
    The shapes of inputs have a batch of one; `default` is for those for which neither they nor a layer have one.
    """
    for layer in layers:
        if layer.kind != "Input":
            check_known(layer)
    inputs = [name for layer in layers if layer.kind == "Input" for name in layer.outputs]
    check_given_shapes(path, shapes, inputs)
    outputs = _outputs(layers)
    if not outputs:
        raise ModelError(f"{path} has no output", why="every blob is read by a layer")
    graph = NcnnGraph(path.stem, weights)
    blobs: dict[str, Value] = {}
    for layer in layers:
        if layer.kind == "Input":
            name, shape = _input(layer, shapes, default)
            blobs[name] = graph.input(name, shape)
            continue
        written = translate(graph, layer, [blobs[name] for name in layer.inputs])
        for name, blob in zip(layer.outputs, written, strict=True):
            blobs[name] = graph.named(blob, name) if name in outputs else blob
    return graph.model(list(outputs))


def _outputs(layers: Sequence[NcnnLayer]) -> dict[str, None]:
    read = {name for layer in layers for name in layer.inputs}
    found: dict[str, None] = {}
    for layer in layers:
        unread = [name for name in layer.outputs if name not in read]
        if layer.kind == "Input" or (layer.kind == "Split" and len(unread) < len(layer.outputs)):
            continue
        found.update(dict.fromkeys(unread))
    return found


def _input(layer: NcnnLayer, shapes: Shapes, default: Sequence[int] | None) -> tuple[str, tuple[int, ...]]:
    if len(layer.outputs) != 1 or layer.inputs or set(layer.parameters) - _INPUT_PARAMETERS:
        raise layer.error("an input writes one blob of one to four dimensions, and reads none")
    [name] = layer.outputs
    # Parameters are w, h, d, c; outer dimensions may be left out, and 0 is an open size.
    stated = [layer.integer(number) for number in (2, 11, 1, 0) if number in layer.parameters]
    given = shapes.get(name)
    if given is None and stated and min(stated) > 0:
        given = [1, *stated]
    given = given or default
    if given is None:
        raise OpenShapeError(
            f"{layer.path}: the file does not state how large input {name!r} is",
            input=name,
            hints=[f"give it a shape: --input-shape {name}:1,3,224,224, its channels, height and width after a 1"],
        )
    if not 1 < len(given) <= 5 or given[0] != 1 or len(stated) not in (0, len(given) - 1):
        says = "x".join(map(str, stated)) if stated else "nothing"
        why = f", the network states {says}, and there is one image at a time"
        raise unfit_shape(layer.path, name, given, why, [f"write it as --input-shape {name}:1,3,224,224"])
    return name, tuple(given[1:])
