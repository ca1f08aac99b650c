"""A model in ONNX's terms as a network: imported through TVM's own importer, with onnxruntime for reference."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgedeploy.frontends.format import Converted
from edgedeploy.frontends.importing import importing, specifications
from edgedeploy.network import Network, Reference
from edgedeploy.onnxruntime_session import cpu_session

_QUANTISED = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}


def network_of(path: Path, converted: Converted) -> Network:
    """Import a model whose inputs have fixed shapes.

    Args:
        path: the file that it comes from.
        converted: the model.

    Raises:
        ModelError: it holds something that cannot be imported.
    """
    model = converted.model
    quantised = any(node.op_type in _QUANTISED for node in model.graph.node)
    serialised = model.SerializeToString()
    reference = _reference(serialised)
    inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
    with importing(path, ["check the file with onnx.checker.check_model, and simplify it with its exporter's options"]):
        module = _import(model)
    given, returned = specifications(path, module["main"], inputs, outputs)
    name = f"onnxruntime {version('onnxruntime')}"
    return Network(
        path,
        module,
        given,
        returned,
        quantised,
        reference,
        name,
        converted.heads,
        _reference(serialised, optimised=False),
        "onnxruntime without graph optimisation",
        converted.metadata,
    )


def _import(model: onnx.ModelProto) -> Any:
    from edgedeploy.frontends.onnx_folding import folded
    from edgedeploy.frontends.onnx_importer import import_model

    return import_model(folded(model))


def _reference(model: bytes, *, optimised: bool = True) -> Reference:
    """One inference by onnxruntime, whose session is made for the first one.

    Optimised graphs have other kernels: convolutions work on blocks of channels.
    """

    @cache
    def opened() -> Any:
        return cpu_session(model, optimised=optimised)

    def run(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = opened()
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(tensors)), strict=True))

    return run
