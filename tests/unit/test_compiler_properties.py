"""Operators of any shape give onnxruntime's outputs: random sizes, strides, paddings, groups, dilations, axes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agreement import agreeing
from support.fuzzing import examples
from support.networks import Graph, begun

pytestmark = pytest.mark.compiles

EXTENT = st.integers(1, 40)


def pairs(lowest: int, highest: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(lowest, highest), st.integers(lowest, highest))


@examples(60)
@given(st.data())
def test_any_convolution_agrees_with_onnxruntime(data: st.DataObject) -> None:
    """The feature map is as large as its dilated kernel at least."""
    draw = data.draw
    kernel, dilations = draw(pairs(1, 5)), draw(pairs(1, 2))
    kind = draw(st.sampled_from(["dense", "dense", "depthwise", "grouped"]))
    per_group = 1 if kind == "depthwise" else draw(st.integers(1, 9))
    groups = 1 if kind == "dense" else draw(st.integers(2, 24 if kind == "depthwise" else 4))
    outputs = groups * (1 if kind == "depthwise" else draw(st.integers(1, 40 if kind == "dense" else 9)))
    size = [(k - 1) * d + draw(st.integers(1, 19)) for k, d in zip(kernel, dilations, strict=True)]
    graph, value = begun(1, per_group * groups, *size)
    if draw(st.booleans()):
        value = graph.node("Relu", value)
    operands = [value, graph.normal(outputs, per_group, *kernel)]
    if draw(st.booleans()):
        operands.append(graph.normal(outputs))
    strides, pads = draw(pairs(1, 3)), draw(st.tuples(*[st.integers(0, 3)] * 4))
    result = graph.node("Conv", *operands, group=groups, dilations=dilations, strides=strides, pads=pads)
    if activation := draw(st.sampled_from([None, "Relu", "Sigmoid", "Neg"])):
        result = graph.node(activation, result)
    agreeing(graph, result)


@examples(20)
@given(st.data())
def test_any_transposed_convolution_agrees_with_onnxruntime(data: st.DataObject) -> None:
    """Pads are less than the kernel reaches, so that something is left."""
    draw = data.draw
    kernel, strides, groups = draw(pairs(1, 4)), draw(pairs(1, 3)), draw(st.sampled_from([1, 1, 2, 6]))
    inputs, outputs = (groups * draw(st.integers(1, 20 // groups)) for _ in range(2))
    attributes = {
        "group": groups,
        "strides": strides,
        "pads": [draw(st.integers(0, (k - 1) // 2)) for k in (*kernel, *kernel)],
        "output_padding": [draw(st.integers(0, stride - 1)) for stride in strides],
    }
    graph, image = begun(1, 3, *draw(pairs(2, 9)))
    weights = graph.normal(inputs, outputs // groups, *kernel)
    before = graph.conv(image, 3, inputs, 1)
    result = graph.node("Relu", graph.node("ConvTranspose", before, weights, **attributes))
    agreeing(graph, graph.conv(result, outputs, 5, 1))


@examples(20)
@given(st.data())
def test_any_pool_agrees_with_onnxruntime(data: st.DataObject) -> None:
    """Padding is less than the window, as ONNX asks."""
    draw = data.draw
    kernel, operator = draw(pairs(1, 5)), draw(st.sampled_from(["MaxPool", "AveragePool"]))
    attributes = {
        "kernel_shape": kernel,
        "strides": draw(pairs(1, 3)),
        "pads": [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)],
        "ceil_mode": draw(st.integers(0, 1)),
    }
    if operator == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    graph, image = begun(1, draw(EXTENT), *(k + draw(st.integers(0, 20)) for k in kernel))
    agreeing(graph, graph.node(operator, graph.node("Neg", image), **attributes))


@examples(20)
@given(
    st.sampled_from(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"]),
    st.lists(st.integers(1, 70), min_size=2, max_size=3),
    st.data(),
)
def test_any_reduction_agrees_with_onnxruntime(operator: str, shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    graph = Graph()
    reduced = graph.node(operator, graph.input("data", shape), axes=sorted(axes), keepdims=data.draw(st.integers(0, 1)))
    agreeing(graph, reduced)


@examples(20)
@given(st.sampled_from(["Softmax", "LogSoftmax"]), st.lists(st.integers(1, 70), min_size=2, max_size=4), st.data())
def test_any_softmax_agrees_with_onnxruntime(operator: str, shape: list[int], data: st.DataObject) -> None:
    graph = Graph()
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    agreeing(graph, graph.node(operator, graph.input("data", shape), axis=axis))


@examples(20)
@given(
    st.tuples(EXTENT, st.integers(1, 15), st.integers(1, 15)),
    pairs(1, 3),
    st.sampled_from(
        [
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"mode": "nearest"},
            {"mode": "linear"},
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        ]
    ),
)
def test_any_resize_agrees_with_onnxruntime(shape: tuple, scales: tuple, attributes: dict) -> None:
    graph, data = begun(1, *shape)
    factors = graph.weight(np.array([1, 1, *scales], dtype=np.float32))
    agreeing(graph, graph.node("Resize", graph.node("Neg", data), "", factors, **attributes))


@examples(20)
@given(st.data())
def test_any_shuffle_of_channels_agrees_with_onnxruntime(data: st.DataObject) -> None:
    """Transposes, concatenations, slices and padding of feature maps, as detectors' heads have them."""
    height, width = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 12))
    channels = data.draw(st.lists(EXTENT, min_size=1, max_size=3))
    graph, image = begun(1, 3, height, width)
    parts = [graph.conv(image, 3, count, 1) for count in channels]
    joined = graph.node("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    first = data.draw(st.integers(0, sum(channels) - 1))
    last = data.draw(st.integers(first + 1, sum(channels)))
    sliced = graph.slice(joined, first, last, axis=1)
    moved = graph.node("Transpose", sliced, perm=[0, *data.draw(st.permutations([1, 2, 3]))])
    agreeing(graph, graph.reshape(moved, 1, -1, last - first))


@examples(20)
@given(EXTENT, st.integers(1, 90), st.integers(1, 90), st.integers(0, 3), st.booleans(), st.booleans())
def test_any_product_of_matrices_agrees_with_onnxruntime(
    rows: int, terms: int, columns: int, stack: int, constant: bool, bias: bool
) -> None:
    graph = Graph()
    left = graph.node("Neg", graph.input("data", [*[2] * (stack > 0), *[3] * (stack > 1), rows, terms]))
    if constant:
        right = graph.normal(terms, columns)
    else:
        wide = graph.node("MatMul", left, graph.normal(terms, columns))
        right = graph.node("Transpose", wide, perm=[*range(min(stack, 2)), min(stack, 2) + 1, min(stack, 2)])
        left = graph.node("MatMul", left, graph.normal(terms, columns))
    product = graph.node("MatMul", left, right)
    if bias:
        product = graph.node("Add", product, graph.normal(columns if constant else rows))
    agreeing(graph, product)


@examples(25)
@given(st.lists(EXTENT, min_size=2, max_size=4), st.integers(0, 2), st.tuples(EXTENT, EXTENT))
def test_any_concat_agrees_with_onnxruntime(parts: list[int], axis: int, others: tuple[int, int]) -> None:
    graph = Graph()
    shapes = [[*others[:axis], part, *others[axis:]] for part in parts]
    inputs = [graph.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    agreeing(graph, graph.node("Neg", graph.node("Concat", *inputs, axis=axis)))


@examples(25)
@given(st.tuples(EXTENT, EXTENT, EXTENT), st.permutations([0, 1, 2]))
def test_any_transpose_agrees_with_onnxruntime(shape: tuple[int, int, int], order: list[int]) -> None:
    graph = Graph()
    agreeing(graph, graph.node("Neg", graph.node("Transpose", graph.input("x", list(shape)), perm=order)))
