"""Networks whose pictures are NHWC, rewritten for the compiler, which expects NCHW.

TensorFlow keeps the channels of a pixel together. The compiler's passes work on planes (NCHW, with weights OIHW) and
choose the layout in memory themselves. Here every convolution, pooling and resizing works on planes between two
transposes, and what lies between such operators is moved inside, so that transposes remain at the edges only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tvm
from tvm import relax

from edgedeploy.compile.expressions import bound_value, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.layouts import NCHW_OF_NHWC
from edgedeploy.compile.lowering import NHWC_OF_NCHW
from edgedeploy.compile.optraits import Kind, is_kind, operator_name


def on_planes(module: tvm.IRModule) -> tvm.IRModule:
    """The module with convolutions, pooling and resizing of NHWC pictures in NCHW, weights in OIHW."""
    return relax.transform.CanonicalizeBindings()(rewritten(_Planes(module), module))


@relax.expr_functor.mutator
class _Planes(relax.PyExprMutator):
    """Visits operators in order; what is known to be a transpose of planes is continued on the planes."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        name = operator_name(call)
        if name in _PICTURES or any(self.planes(each) is not None for each in _tensors(call)):
            handler = _PICTURES.get(name) or _FOLLOWING.get(name)
            if handler is None and is_kind(call, Kind.ELEMENTWISE, Kind.REDUCTION):
                handler = _elementwise if is_kind(call, Kind.ELEMENTWISE) else _reduction
            planes = handler(self, call) if handler else None
            return call if planes is None else planes
        return call

    def planes(self, value: relax.Expr) -> relax.Expr | None:
        """The NCHW tensor that a value in NHWC was transposed from."""
        transpose = bound_value(self, value)
        if is_call(transpose, "relax.permute_dims") and _integers(transpose.attrs.axes) == NHWC_OF_NCHW:
            return transpose.args[0]
        return None

    def as_planes(self, value: relax.Expr) -> relax.Expr:
        """A picture as planes; transposes it where it is not known as such."""
        planes = self.planes(value)
        return self.builder_.emit(relax.op.permute_dims(value, NCHW_OF_NHWC)) if planes is None else planes

    def emit(self, expression: relax.Expr) -> relax.Expr:
        """Bind an expression to a variable."""
        return self.builder_.emit(expression)

    def pixels(self, planes: relax.Expr) -> relax.Expr:
        """Planes transposed back."""
        return relax.op.permute_dims(self.emit(planes), NHWC_OF_NCHW)


Handler = Callable[[_Planes, relax.Call], relax.Expr | None]


def _weights(call: relax.Call, layout: str) -> relax.Expr | None:
    """The constant weights of a convolution in NHWC, in another layout; None if it has no such."""
    weights = constant_value(call.args[1])
    if call.attrs.data_layout != "NHWC" or weights is None:
        return None
    order = [str(call.attrs.kernel_layout).index(axis) for axis in layout]
    return constant(weights.transpose(order))


def _convolution(network: _Planes, call: relax.Call) -> relax.Expr | None:
    attrs, transposed = call.attrs, is_call(call, "relax.nn.conv2d_transpose")
    weights = _weights(call, "IOHW" if transposed else "OIHW")
    if weights is None:
        return None
    operands = (network.as_planes(call.args[0]), weights, attrs.strides, attrs.padding)
    if transposed:
        made = relax.op.nn.conv2d_transpose(*operands, attrs.output_padding, attrs.dilation, attrs.groups)
    else:
        made = relax.op.nn.conv2d(*operands, attrs.dilation, attrs.groups)
    return network.pixels(made)


def _pool(network: _Planes, call: relax.Call) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NHWC":
        return None
    pool = relax.op.nn.max_pool2d if is_call(call, "relax.nn.max_pool2d") else relax.op.nn.avg_pool2d
    planes = network.as_planes(call.args[0])
    window = (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation)
    return network.pixels(pool(planes, *window, attrs.ceil_mode, attrs.count_include_pad))


def _resize(network: _Planes, call: relax.Call) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NHWC":
        return None
    return network.pixels(
        relax.op.image.resize2d(
            network.as_planes(call.args[0]),
            call.args[1],
            roi=[float(value) for value in attrs.roi],
            layout="NCHW",
            method=attrs.method,
            coordinate_transformation_mode=attrs.coordinate_transformation_mode,
            rounding_method=attrs.rounding_method,
            cubic_alpha=attrs.cubic_alpha,
            cubic_exclude=attrs.cubic_exclude,
            extrapolation_value=attrs.extrapolation_value,
        )
    )


def _elementwise(network: _Planes, call: relax.Call) -> relax.Expr | None:
    arguments = [_operand(network, value, shape_of(call)) for value in call.args]
    if any(argument is None for argument in arguments):
        return None
    return network.pixels(relax.Call(call.op, arguments, call.attrs))


def _operand(network: _Planes, value: relax.Expr, shape: list[int]) -> relax.Expr | None:
    """One side of an elementwise operator on pictures, as planes; a constant may be broadcast."""
    if not isinstance(value.ty, relax.TensorType):
        return value  # a bound of a clip
    known = constant_value(value)
    if known is not None and known.ndim <= 4:
        whole = known.reshape((1,) * (4 - known.ndim) + known.shape)
        return value if known.size == 1 else constant(whole.transpose(NCHW_OF_NHWC))
    return network.as_planes(value) if known is None and len(shape_of(value)) == len(shape) == 4 else None


def _prelu(network: _Planes, call: relax.Call) -> relax.Expr | None:
    if int(call.attrs.axis) not in (3, -1):
        return None
    return network.pixels(relax.op.nn.prelu(network.as_planes(call.args[0]), call.args[1], axis=1))


def _concatenation(network: _Planes, call: relax.Call) -> relax.Expr | None:
    fields = list(_tensors(call))
    if len(shape_of(call)) != 4 or any(constant_value(field) is not None for field in fields):
        return None
    axis = NHWC_OF_NCHW[int(call.attrs.axis)]
    return network.pixels(relax.op.concat([network.as_planes(field) for field in fields], axis))


def _pad(network: _Planes, call: relax.Call) -> relax.Expr | None:
    widths = _integers(call.attrs.pad_width)
    moved = [widths[2 * axis + side] for axis in NCHW_OF_NHWC for side in (0, 1)]
    return network.pixels(
        relax.op.nn.pad(network.as_planes(call.args[0]), moved, call.attrs.pad_mode, float(call.attrs.pad_value))
    )


def _reduction(network: _Planes, call: relax.Call) -> relax.Expr | None:
    axes = sorted(NHWC_OF_NCHW[int(axis)] for axis in call.attrs.axis or [])
    if not axes or (not call.attrs.keepdims and axes != [2, 3]):
        return None
    attrs = {"axis": axes, "keepdims": bool(call.attrs.keepdims)}
    reduced = getattr(relax.op, operator_name(call))(network.as_planes(call.args[0]), **attrs)
    return network.pixels(reduced) if call.attrs.keepdims else reduced


# These work on pictures; by attributes, or else they are left alone.
_PICTURES: dict[str, Handler] = {
    "image.resize2d": _resize,
    "nn.avg_pool2d": _pool,
    "nn.conv2d": _convolution,
    "nn.conv2d_transpose": _convolution,
    "nn.max_pool2d": _pool,
}
# These continue on planes what is there as planes, as elementwise operators and reductions do.
_FOLLOWING: dict[str, Handler] = {
    "concat": _concatenation,
    "nn.pad": _pad,
    "nn.prelu": _prelu,
}


def _tensors(call: relax.Call) -> Iterable[relax.Expr]:
    """The tensors that a call reads, those of a tuple included."""
    for argument in call.args:
        yield from argument.fields if isinstance(argument, relax.Tuple) else (argument,)


def _integers(values: Any) -> list[int]:
    return [int(value) for value in values or []]
