"""Convolutions of any shape give onnxruntime's outputs: random sizes, strides, paddings, groups, dilations."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from networks import Graph
from running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx


@st.composite
def convolutions(draw: st.DrawFn) -> dict:
    """A convolution's shape; the picture is as large as its dilated kernel at least."""
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    kind = draw(st.sampled_from(["dense", "dense", "depthwise", "grouped"]))
    per_group = 1 if kind == "depthwise" else draw(st.integers(1, 9))
    groups = 1 if kind == "dense" else draw(st.integers(2, 24 if kind == "depthwise" else 4))
    multiplier = 1 if kind == "depthwise" else draw(st.integers(1, 40 if kind == "dense" else 9))
    return {
        "size": [(k - 1) * d + draw(st.integers(1, 19)) for k, d in zip(kernel, dilations, strict=True)],
        "inputs": per_group * groups,
        "outputs": multiplier * groups,
        "kernel": kernel,
        "bias": draw(st.booleans()),
        "activation": draw(st.sampled_from([None, "Relu", "Sigmoid", "Neg"])),
        "attributes": {
            "group": groups,
            "dilations": dilations,
            "strides": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
            "pads": draw(st.tuples(*[st.integers(0, 3)] * 4)),
        },
        "before": draw(st.booleans()),
    }


# The examples are the same on every run: a failure that comes and goes helps nobody.
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(convolutions())
def test_any_convolution_agrees_with_onnxruntime(shape: dict) -> None:
    graph = Graph()
    data = graph.input("data", [1, shape["inputs"], *shape["size"]])
    if shape["before"]:
        data = graph.node("Relu", data)
    groups = shape["attributes"]["group"]
    weights = graph.normal(shape["outputs"], shape["inputs"] // groups, *shape["kernel"])
    bias = [graph.normal(shape["outputs"])] if shape["bias"] else []
    result = graph.node("Conv", data, weights, *bias, **shape["attributes"])
    if shape["activation"]:
        result = graph.node(shape["activation"], result)
    with tempfile.TemporaryDirectory() as folder:
        network = read_onnx(graph.save(Path(folder) / "net.onnx", result))
    compiled = compile_network(network, load_board("local"))
    picture = {"data": np.random.default_rng(0).standard_normal(network.inputs[0].shape).astype(np.float32)}
    [wanted] = network.reference(picture).values()
    [found] = outputs_of(compiled, picture)
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max() + 1e-6
