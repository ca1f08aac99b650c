"""Layers as functions in canonical form that state their anchor operator, and operators that are fused with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax, te, topi

from edgedeploy.compile import layers
from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.types import bits_of, is_floating
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.passes import Compilation
from edgedeploy.compile.schedules.kernel import Packing
from edgedeploy.compile.strategy import PackedForm

LAYER_ATTRIBUTE = "edgedeploy.layer"  # the attribute of a function that holds a layer, as JSON

# Layers of more input channels read NHWC: in NCHW they would go from one line of the cache to another for each of them.
_FEW_CHANNELS = 16


class _Lowerer(ir.Rewriter):
    """Replaces each `conv2d`, and each product of matrices, by a function of ours.

    Expects convolutions in NHWC, HWIO, as `ConvertLayout` leaves them. If a first layer's input of few channels is
    transposed for it, the function reads the NCHW feature map instead: its input values are broadcast one by one.
    """

    def __init__(
        self, module: tvm.IRModule, with_half_weights: Callable[[layers.AnyAnchorOp], layers.AnyAnchorOp | None]
    ) -> None:
        super().__init__(module)
        self._with_half_weights = with_half_weights

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if ir.is_call(call, "relax.matmul"):
            return self._product(call)
        if ir.is_call(call, "relax.nn.conv2d") and call.attrs.data_layout == "NHWC":
            return self._convolution(call)
        return None

    def _convolution(self, call: relax.Call) -> relax.Expr:
        data, groups, outputs = call.args[0], int(call.attrs.groups), ir.shape_of(call.args[1])[3]
        sizes = (tuple(ir.integers_of(call.attrs, each)) for each in ("strides", "dilation", "padding"))
        window = Window(tuple(ir.shape_of(call.args[1])[:2]), *sizes)  # type: ignore[arg-type]
        transpose = self.bound_value(data)
        kind: type[layers.AnyAnchorOp] = layers.Convolution
        if ir.shape_of(call.args[1])[2] == 1 and groups == outputs > 1:
            kind = layers.DepthwiseConvolution
        elif groups == 1 and ir.shape_of(data)[3] <= _FEW_CHANNELS and ir.axes_of(transpose) == ir.NHWC_OF_NCHW:
            kind, data = layers.FirstConvolution, transpose.args[0]
        rows = 2 if kind is layers.FirstConvolution else 1
        pad = self.bound_value(data)
        if (padded := _with_padding(window, pad, rows)) is not None:
            window, data = padded, pad.args[0]
        return self._emit(kind, call, data, call.args[1], window=window)

    def _product(self, call: relax.Call) -> relax.Expr | None:
        data, weights = call.args
        rank = len(ir.shape_of(weights))
        if min(len(ir.shape_of(data)), rank) < 2:
            return None
        if ir.constant_value(weights) is not None and rank == 2:
            return self._emit(layers.Dense, call, data, weights)
        transpose = self.bound_value(weights)
        transposed = ir.axes_of(transpose) == [*range(rank - 2), rank - 1, rank - 2]
        matrices = transpose.args[0] if transposed else weights
        return self._emit(layers.BatchMatmul, call, data, matrices, transposed=transposed)

    def _emit(
        self, kind: type[layers.AnyAnchorOp], call: relax.Call, data: relax.Expr, weights: relax.Expr, **others: Any
    ) -> relax.Expr:
        read, multiplied = tuple(ir.shape_of(data)), tuple(ir.shape_of(weights))
        constant = ir.constant_value(weights) is not None
        layer = kind(data=read, weights=multiplied, types=ir.types_of(call), constant=constant, **others)
        layer, weights = self._stored(layer, weights)
        form, attributes = layer.canonical(), {LAYER_ATTRIBUTE: layer.model_dump_json()}
        return self.builder_.call_te(
            lambda *tensors: form(*tensors), data, weights, primfunc_name_hint=layer.name, primfunc_attrs=attributes
        )

    def _stored(self, layer: layers.AnyAnchorOp, weights: relax.Expr) -> tuple[layers.AnyAnchorOp, relax.Expr]:
        """A layer and its weights: in half precision if that holds them exactly, and is faster to read."""
        known = ir.constant_value(weights)
        if known is None or (halved := self._with_half_weights(layer)) is None:
            return layer, weights
        stored = ir.exactly_in_half(known)
        return (layer, weights) if stored is None else (halved, ir.constant(stored))


def _with_padding(window: Window, pad: Any, rows: int) -> Window | None:
    """A window over integers that includes the padding of an operator before it; None for other operators.

    `pad` is the expression of its data, and `rows` the axis of the data's rows; that of columns is the next one.
    """
    if not ir.is_call(pad, "relax.nn.pad") or pad.attrs.pad_mode != "constant" or any(window.padding):
        return None
    widths = [int(width) for width in pad.attrs.pad_width]
    (top, bottom), (left, right) = (widths[2 * axis : 2 * axis + 2] for axis in (rows, rows + 1))
    if is_floating(str(pad.ty.dtype)) or sum(widths) != top + bottom + left + right:
        return None
    return replace(window, padding=(top, left, bottom, right), padding_value=float(pad.attrs.pad_value))


lower_anchors = _Lowerer.rewritten


def keep_slices_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep slices out of the functions of the convolutions before them.

    TVM takes a slice that begins at zero for an elementwise operator. Fused, it would leave the convolution's
    tiles with a tail that no full vector covers.
    """
    for variable, function in list(module.functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc) and variable.name_hint.startswith("strided_slice"):
            module.update_func(variable, function.with_attr("op_pattern", ir.INJECTIVE))
    return module


def _is_elementwise(function: tvm.tirx.PrimFunc) -> bool:
    """Whether a function can be fused with a layer before it."""
    return int(function.attrs.get("op_pattern", ir.OPAQUE)) < ir.INJECTIVE


class _BroadcastSeparator(ir.Rewriter):
    """Keeps an operator that broadcasts a layer's result out of the layer's function.

    The gate of a squeeze-and-excitation block has one pixel, which all pixels of a feature map are multiplied by: in
    one function the layer that computes the gate would be computed for each of them.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not ir.is_call(call, "relax.call_tir") or not isinstance(call.ty_args[0], relax.TensorType):
            return None
        function, whole = self.module[call.args[0]], math.prod(ir.shape_of(call))
        sizes = {each: math.prod(ir.shape_of(each)) for each in original.args[1].fields if isinstance(each, relax.Var)}
        broadcasts = any(size < whole for size in sizes.values())
        # Of a feature map that nothing else reads, the function of the layer that computes it is a good place.
        welcome = any(size == whole and self.uses[each] == 1 for each, size in sizes.items())
        # Matrices among the operands of a stack of more dimensions: a product's rows would not be the result's.
        shape, shapes = ir.shape_of(call), [ir.shape_of(each) for each in sizes]
        matrices = any(1 < len(each) < len(shape) and each[-2:] == shape[-2:] for each in shapes)
        if not _is_elementwise(function) or not (matrices or (broadcasts and not welcome)):
            return None
        apart = self.builder_.add_func(function.with_attr("op_pattern", ir.INJECTIVE), ir.function_name(call))
        return relax.call_tir(apart, call.args[1], call.ty_args[0])


keep_broadcasts_apart = _BroadcastSeparator.rewritten


class _Separator(ir.Rewriter):
    """Ends a layer's function where its result is narrowest, if the results of two layers meet.

    One of them is stored, and read by the other layer's function. With the conversions behind it, it would be stored as
    floats: four times as many bytes, and rounded once more, before the sum of a residual block.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        found = map(self._narrowest_before, self.before.values())
        self._apart = [self.before[each] for each in found if each is not None]

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not any(map(original.same_as, self._apart)):
            return None
        stored = self.emit(call)
        names = {"primfunc_name_hint": "stored", "primfunc_attrs": {"op_pattern": ir.OPAQUE}}
        return self.builder_.call_te(topi.reshape, stored, ir.shape_of(stored), **names)

    def _narrowest_before(self, call: Any) -> relax.Var | None:
        """What to store of an operand of a call that joins the results of two layers; None at other calls."""
        if not ir.is_call(call, "relax.call_tir") or not _is_elementwise(self.module[call.args[0]]):
            return None
        operands = [each for each in call.args[1].fields if isinstance(each, relax.Var)]
        paths = [path for each in operands if (path := self._path(each))]
        if len(paths) < 2:
            return None
        ends = [(path[0], min(path, key=_bits)) for path in paths]
        last, narrowest = max(ends, key=lambda each: _bits(each[0]) - _bits(each[1]))
        return narrowest if _bits(narrowest) < _bits(last) else None

    def _path(self, variable: relax.Var) -> list[relax.Var]:
        """A value and those that it is computed from alone, one after the other, back to a layer's; else none."""
        found = []
        while variable in self.before and self.uses[variable] == 1:
            call = self.before[variable]
            found.append(variable)
            if not ir.is_call(call, "relax.call_tir"):
                break
            if _layer_in(self.module[call.args[0]]):
                return found
            operands = [each for each in call.args[1].fields if isinstance(each, relax.Var)]
            if not _is_elementwise(self.module[call.args[0]]) or len(operands) != 1:
                break
            [variable] = operands
        return []


def _bits(variable: relax.Var) -> int:
    return bits_of(str(variable.ty.dtype))


store_narrow = _Separator.rewritten


@dataclass(frozen=True)
class FusedFunction:
    """A layer in its group, whose functions are in `module`.

    `function` is that of the group, before it becomes one loop nest; or the layer's own.
    """

    layer: layers.AnyAnchorOp
    function: relax.Function | tvm.tirx.PrimFunc
    module: tvm.IRModule

    @property
    def weights(self) -> int:
        """The index of the weights among the parameters."""
        if not isinstance(self.function, relax.Function):
            return 1
        calls = (call for _, call in ir.calls_of(self.function) if _layer_in(self.module[call.args[0]]))
        variable = next(calls).args[1].fields[1]
        return next(index for index, each in enumerate(self.function.params) if each.same_as(variable))

    def packing(self, form: PackedForm) -> Packing | None:
        """How the weights are packed for the lowered function; None if they stay as they are."""
        if (form.shape, form.dtype) == (self.layer.weights, self.layer.types.weights):
            return None
        return Packing(self.weights, form.pack, form.at_load)

    def lower(self, form: PackedForm) -> tvm.tirx.PrimFunc:
        """The group as one function, its layer in a form."""
        types, weights, packed = self.layer.types, self.weights, (form.shape, form.dtype)
        if not isinstance(self.function, relax.Function):
            tensors = [te.placeholder(self.layer.data, types.data), te.placeholder(*packed)]
            function = te.create_prim_func([*tensors, form.compute(*tensors)], index_dtype_override="int64")
            return function.without_attr("global_symbol")
        builder = relax.BlockBuilder()
        parameters = [relax.Var(each.name, each.ty) for each in self.function.params]
        parameters[weights] = relax.Var(parameters[weights].name, relax.TensorType(*packed))
        values = dict(zip(self.function.params, parameters, strict=True))
        with builder.function("group", parameters, attrs=dict(self.function.attrs), private=True):
            with builder.dataflow():
                for variable, call in ir.calls_of(self.function):
                    arguments = [values.get(each, each) for each in call.args[1].fields]
                    called = self.module[call.args[0]]
                    if _layer_in(called):
                        written = builder.call_te(lambda *tensors: form.compute(*tensors), *arguments)
                    else:
                        callee = builder.add_func(called, ir.function_name(call))
                        written = relax.call_tir(callee, relax.Tuple(arguments), call.ty_args[0])
                    values[variable] = builder.emit(written)
                output = builder.emit_output(values[self.function.body.body])
            group = builder.emit_func_output(output)
        outer = [relax.Var(each.name, each.ty) for each in parameters]
        with builder.function("main", outer):
            builder.emit_func_output(builder.emit(relax.Call(group, outer)))
        fused = relax.transform.FuseTIR()(builder.get())
        [(_, call)] = ir.calls_of(fused["main"])
        return fused[call.args[0]]


def fused_functions(module: tvm.IRModule) -> dict[str, FusedFunction]:
    """By name, the functions of a network that hold a layer. Expects the result of `FuseOps`."""
    found = {}
    for variable, function in module.functions.items():
        alone = isinstance(function, tvm.tirx.PrimFunc)
        inner = [function] if alone else [module[call.args[0]] for _, call in ir.calls_of(function)]
        held = [layer for each in inner if (layer := _layer_in(each))]
        if held and variable.name_hint != "main":
            found[variable.name_hint] = FusedFunction(held[0], function, module)
    return found


def _layer_in(function: tvm.tirx.PrimFunc) -> layers.AnyAnchorOp | None:
    layer = function.attrs.get(LAYER_ATTRIBUTE) if function.attrs else None
    return layers.LAYER.validate_json(str(layer)) if layer else None


def merge_fused(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    """Make one function of each group, and keep the groups that hold a layer."""
    compilation.groups = fused_functions(module)
    return relax.transform.FuseTIR()(module)
