"""Layers that put several values into one: pooling, reductions."""

from __future__ import annotations

from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.ncnn.graph import UNSET, translates
from edgedeploy.compile.backends.cpu.steps import Step
from edgedeploy.frontends.ncnn.step import Blob

_FULL, _VALID, _SAME_UPPER, _SAME_LOWER = range(4)


@translates("Pooling", {*range(9), *range(11, 16), 18})
def _pooling(step: Step) -> Blob:
    layer, blob = step.layer, step.only_input(3)
    operator = layer.one_of(0, "pooling", ("MaxPool", "AveragePool"))
    if layer.integer(4):
        return step.reshape(step.node(f"Global{operator}", blob), blob.shape[:1])
    if layer.integer(7):
        return _adaptive(step, blob, operator)
    width, stride, left = layer.integer(1), layer.integer(2, 1), layer.integer(3)
    top = layer.integer(13, left)
    kernel, strides = (layer.integer(11, width), width), (layer.integer(12, stride), stride)
    begins, ends = [top, left], [layer.integer(15, top), layer.integer(14, left)]
    if min(*kernel, *strides) < 1 or min(*begins, *ends) < 0:
        raise layer.error("kernel and stride should be positive, and padding not negative")
    mode = layer.one_of(5, "padding", (_FULL, _VALID, _SAME_UPPER, _SAME_LOWER))
    # ncnn counts the zeros of SAME among the values of an average, other than TensorFlow.
    counted = layer.integer(6) != 0 or mode in (_SAME_UPPER, _SAME_LOWER)
    if mode in (_SAME_UPPER, _SAME_LOWER):
        begins, ends = halves(same_padding(blob.shape[1:], kernel, strides), lower=mode == _SAME_LOWER)
    used = []
    for size, begin, end, extent, stride in zip(blob.shape[1:], begins, ends, kernel, strides, strict=True):
        steps, rest = divmod(size + begin + end - extent, stride)
        if mode == _FULL and rest:
            steps += 1
        # Padding that no window reaches is left away, and what the last one needs is there.
        end = max(steps * stride + extent - size - begin, 0)
        if max(begin, end) >= extent:
            raise layer.error("a window lies in the padding altogether")
        used.append(end)
    return _pooled(step, blob, operator, kernel, strides, [*begins, *used], counted)


def _pooled(
    step: Step,
    blob: Blob,
    operator: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: list[int],
    counted: bool,
) -> Blob:
    more = {"count_include_pad": int(counted)} if operator == "AveragePool" else {}
    return step.node(operator, blob, kernel_shape=kernel, strides=strides, pads=pads, **more)


def _adaptive(step: Step, blob: Blob, operator: str) -> Blob:
    """Pooling to a stated size, where it divides that of the input: windows of one size side by side."""
    layer = step.layer
    width = layer.integer(8)
    wanted = (layer.integer(18, width), width)
    height, width = (size if want == UNSET else want for size, want in zip(blob.shape[1:], wanted, strict=True))
    if min(height, width) < 1 or blob.shape[1] % height or blob.shape[2] % width:
        raise layer.error(
            f"pooling from {blob.shape[1]}x{blob.shape[2]} to {height}x{width} needs windows of many sizes"
        )
    kernel = (blob.shape[1] // height, blob.shape[2] // width)
    return _pooled(step, blob, operator, kernel, kernel, [0, 0, 0, 0], False)


# By ncnn's number.
_KINDS = ("Sum", "L1", "SumSquare", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp")
_REDUCTIONS = [f"Reduce{kind}" for kind in _KINDS]


@translates("Reduction", range(6))
def _reduction(step: Step) -> Blob:
    layer, blob = step.layer, step.only_input()
    operator, factor, stated = layer.one_of(0, "operation", _REDUCTIONS), layer.number(2, 1.0), layer.integers(3)
    if stated and not layer.integer(5):
        raise layer.error("it was written when axes were counted otherwise", "convert the network again")
    whole = layer.integer(1, 1) != 0
    axes = range(blob.rank) if whole else sorted({step.axis(axis, blob.rank) for axis in stated})
    if not axes:
        return blob
    if operator == "ReduceSum":  # the only one that takes axes as an input, in this version of ONNX
        reduced = step.node(operator, blob, step.axes(axes), keepdims=1)
    else:
        reduced = step.node(operator, blob, axes=list(axes), keepdims=1)
    if factor != 1:
        reduced = step.node("Mul", reduced, step.constant(factor))
    if layer.integer(4):
        return reduced
    return step.reshape(reduced, [size for axis, size in enumerate(blob.shape) if axis not in axes] or [1])
