"""Layers with the operators that are fused with them, and what is kept out because it would slow them down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax, te

from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.expressions import Rewriter, calls_of, function_name, is_call, rewritten, shape_of
from edgedeploy.compile.layers import LAYER, AnyAnchorOp
from edgedeploy.compile.lowering import LAYER_ATTRIBUTE
from edgedeploy.compile.schedules.kernel import Packing
from edgedeploy.compile.strategy import Strategy

# TVM's `OpPatternKind::kInjective`: fused with what follows, but not into what comes before.
INJECTIVE = 2
# `kOpaque`: never fused.
OPAQUE = 8


def keep_broadcasts_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Keep an operator that broadcasts what a layer computes out of the layer's function.

    The gate of a squeeze-and-excitation block has one pixel, which all pixels of a feature map are multiplied by: in
    one function the layer that computes the gate would be computed for each of them.
    """
    return rewritten(_Keeper, module)


class _Keeper(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.call_tir") or not isinstance(call.ty_args[0], relax.TensorType):
            return None
        function, whole = self.module[call.args[0]], math.prod(shape_of(call))
        computed = {each: math.prod(shape_of(each)) for each in original.args[1].fields if isinstance(each, relax.Var)}
        broadcasts = any(size < whole for size in computed.values())
        # Of a feature map that nothing else reads, the function of the layer that computes it is a good place.
        welcome = any(size == whole and self.uses[each] == 1 for each, size in computed.items())
        # Matrices among the operands of a stack of more dimensions: a product's rows would not be the result's.
        matrices = any(len(shape_of(each)) < len(shape_of(call)) and _same_matrices(each, call) for each in computed)
        fusible = int(function.attrs.get("op_pattern", INJECTIVE)) < INJECTIVE
        if not fusible or not (matrices or (broadcasts and not welcome)):
            return None
        apart = self.builder_.add_func(function.with_attr("op_pattern", INJECTIVE), function_name(call))
        return relax.call_tir(apart, call.args[1], call.ty_args[0])


def _same_matrices(operand: relax.Expr, result: relax.Expr) -> bool:
    """Whether the last two dimensions are the same."""
    return len(shape_of(operand)) > 1 and shape_of(operand)[-2:] == shape_of(result)[-2:]


@dataclass(frozen=True)
class FusedFunction:
    """A layer in its group.

    Attributes:
        layer: it.
        function: the Relax function of the group, before it becomes one loop nest; or the layer's own alone.
        module: where the functions are that the group calls.
    """

    layer: AnyAnchorOp
    function: relax.Function | tvm.tirx.PrimFunc
    module: tvm.IRModule

    @property
    def weights(self) -> int:
        """The index of the weights among the parameters."""
        if not isinstance(self.function, relax.Function):
            return 1
        variable = next(call.args[1].fields[1] for _, call in calls_of(self.function) if _layer_of(call, self.module))
        return next(index for index, each in enumerate(self.function.params) if each.same_as(variable))

    def packing(self, strategy: Strategy[Any], configuration: Configuration) -> Packing | None:
        """How the weights become what the lowered function takes, if it does not take them as they are."""
        packed = strategy.packed_shape(configuration), strategy.packed_type(configuration)
        if packed == (self.layer.weights, self.layer.types.weights):
            return None
        return Packing(self.weights, partial(strategy.packed, configuration), strategy.packed_form(configuration))

    def lower(self, strategy: Strategy[Any], configuration: Configuration) -> tvm.tirx.PrimFunc:
        """The group as one function, its layer in a configuration."""
        form, types = strategy.lower(configuration), self.layer.types
        weights, packed = self.weights, (strategy.packed_shape(configuration), strategy.packed_type(configuration))
        if not isinstance(self.function, relax.Function):
            tensors = [te.placeholder(self.layer.data, types.data), te.placeholder(*packed)]
            function = te.create_prim_func([*tensors, form(*tensors)], index_dtype_override="int64")
            return function.without_attr("global_symbol")
        builder = relax.BlockBuilder()
        parameters = [relax.Var(each.name, each.ty) for each in self.function.params]
        parameters[weights] = relax.Var(parameters[weights].name, relax.TensorType(*packed))
        values = dict(zip(self.function.params, parameters, strict=True))
        with builder.function("group", parameters, attrs=dict(self.function.attrs), private=True):
            with builder.dataflow():
                for variable, call in calls_of(self.function):
                    arguments = [values.get(each, each) for each in call.args[1].fields]
                    if _layer_of(call, self.module):
                        written = builder.call_te(lambda *tensors: form(*tensors), *arguments)
                    else:
                        callee = builder.add_func(self.module[call.args[0]], function_name(call))
                        written = relax.call_tir(callee, relax.Tuple(arguments), call.ty_args[0])
                    values[variable] = builder.emit(written)
                output = builder.emit_output(values[self.function.body.body])
            group = builder.emit_func_output(output)
        outer = [relax.Var(each.name, each.ty) for each in parameters]
        with builder.function("main", outer):
            builder.emit_func_output(builder.emit(relax.Call(group, outer)))
        fused = relax.transform.FuseTIR()(builder.get())
        [(_, call)] = calls_of(fused["main"])
        return fused[call.args[0]]


def fused_functions(module: tvm.IRModule) -> dict[str, FusedFunction]:
    """By name, the functions of a network that hold a layer. Expects what `FuseOps` leaves."""
    found = {}
    for variable, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            layer = _layer_in(function)
        elif variable.name_hint == "main":
            continue
        else:
            layers = (_layer_of(call, module) for _, call in calls_of(function))
            layer = next((each for each in layers if each), None)
        if layer:
            found[variable.name_hint] = FusedFunction(layer, function, module)
    return found


def _layer_in(function: tvm.tirx.PrimFunc) -> AnyAnchorOp | None:
    said = function.attrs.get(LAYER_ATTRIBUTE) if function.attrs else None
    return LAYER.validate_json(str(said)) if said else None


def _layer_of(call: relax.Call, module: tvm.IRModule) -> AnyAnchorOp | None:
    return _layer_in(module[call.args[0]])
