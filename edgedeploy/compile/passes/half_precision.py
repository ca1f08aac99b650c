"""Half precision (float16): which operators of a network compute in it, and a copy of the network that tries them out.

Networks are imported in the precision of their file, and widened to single precision first. Layers then compute in
half, as do sigmoids, and operators that move or compare values or round once, where their data are in half. Others stay
in single: sums of many values, softmax, norms and other elementary functions.

On CPUs without half arithmetic only weights are in half, of layers that take longer to read them than to compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.backends import computes_in_half, host_of
from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import Kind, is_kind, operator_name
from edgedeploy.compile.layers import Dense
from edgedeploy.compile.passes import Compilation, Pass
from edgedeploy.model.network import Network
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.target.board import Board

HALF, SINGLE = "float16", "float32"

# The largest finite number in half precision, and how far below it the values of a layer must stay: inputs in use may
# be larger than those of a trial.
LARGEST = 65504.0
MARGIN = 4.0

# How many times the largest input the transformed data of Winograd's convolutions may be, rounded up: the square of the
# largest sum of the sizes in a row of B^T.
GROWTH = 28.0

# The names of a trial's further inputs, with a number each, and of its further output.
SWITCH, PEAKS = "edgedeploy.switch", "edgedeploy.peaks"

_LAYERS = ("nn.conv2d", "matmul")

_ROUNDED_ONCE = """
abs add broadcast_to clip concat expand_dims flatten flip max maximum min minimum multiply negative nn.leakyrelu
nn.max_pool2d nn.pad nn.prelu nn.relu permute_dims repeat reshape split squeeze stack strided_slice subtract take tile
where
""".split()  # noqa: SIM905

# Functions of one value for which half precision has a form of its own (`ir/elementary.py`).
_WITH_FORMS = ("erf", "nn.silu", "sigmoid")


class _Writer(ir.Rewriter):
    """Writes a network's function again, operator by operator; subclasses choose what each becomes.

    `variable` is the network's variable whose value is being written.
    """

    variable: Any = None

    def operator(self, call: relax.Call, arguments: list[Any]) -> Any:
        """What a call becomes, for its new arguments."""
        raise NotImplementedError

    def outputs(self, results: Any, declared: Any) -> Any:
        """The outputs of the new function, or other values, in the types that the old ones had."""
        whole = self.bound_value(results)
        if isinstance(whole, relax.Tuple):
            return relax.Tuple([*map(self.outputs, whole.fields, declared.fields)])
        return self.as_type(results, str(getattr(declared, "dtype", "")))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        return self.operator(call, [self.visit_expr(each) for each in call.args])  # whose types may not fit yet

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.variable = binding.var
        written = self._new(self.visit_expr(binding.value))
        if not isinstance(binding.var, relax.DataflowVar):
            written = self.builder_.emit_output(self.outputs(written, binding.var.ty))
        self.set_var_remap(binding.var, written)

    def as_type(self, value: Any, dtype: str) -> Any:
        """A tensor of floats, or a tuple of them, in a precision; anything else as it is."""
        whole = self.bound_value(value)
        if isinstance(whole, relax.Tuple):
            return relax.Tuple([self.as_type(each, dtype) for each in whole.fields])
        if precision_of(value) in (None, dtype):
            return value
        if (known := ir.constant_value(value)) is not None:
            with np.errstate(over="ignore"):
                return ir.constant(known.astype(dtype))
        if ir.is_call(whole, "relax.astype") and precision_of(whole.args[0]) == dtype == HALF:
            return whole.args[0]  # it was rounded to half before
        return self.emit.astype(value, dtype)

    def with_types(self, call: relax.Call, arguments: list[Any], dtype: str) -> Any:
        """A call whose arguments of floats are in a precision, and its result with them if the operator allows it.

        So are the sums of a layer.
        """
        found = [self.as_type(each, dtype) for each in arguments]
        if not is_layer(call):
            return relax.Call(call.op, found, call.attrs, call.ty_args)
        if ir.is_call(call, "relax.nn.conv2d"):
            return ir.conv2d_like(call, *found, out_dtype=dtype)
        return relax.op.matmul(*found, out_dtype=dtype)

    def _new(self, value: Any) -> Any:
        return value if isinstance(value, relax.Var) else self.emit(value)


def precision_of(value: Any) -> str | None:
    """The precision of a tensor: `HALF` or `SINGLE`; None for anything else."""
    dtype = str(getattr(value.ty, "dtype", ""))
    return dtype if dtype in (HALF, SINGLE) else None


def is_layer(call: Any) -> bool:
    """Whether an expression computes a layer that may be in half precision: a convolution or a product of floats."""
    return operator_name(call) in _LAYERS and precision_of(call) is not None


class _Widener(_Writer):
    """Everything in single precision, but for inputs and outputs; a cast to half still rounds."""

    def operator(self, call: relax.Call, arguments: list[Any]) -> Any:
        if ir.is_call(call, "relax.call_tir") or _states_half(call):
            types = [each.ty for each in call.args]
            return relax.Call(call.op, [*map(self.outputs, arguments, types)], call.attrs, call.ty_args)
        if ir.is_call(call, "relax.astype"):
            return relax.Call(call.op, arguments, call.attrs)
        return self.with_types(call, arguments, SINGLE)


def _states_half(call: relax.Call) -> bool:
    """Whether an operator's attributes state its result's type, as those of few do."""
    stated = str(getattr(call.attrs, "out_dtype", "") or getattr(call.attrs, "dtype", "") or "")
    return stated == HALF and operator_name(call) not in (*_LAYERS, "astype")


def _widened(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    types = [kind for each in ir.bindings_of(module["main"]) for kind in getattr(each.var.ty, "fields", [each.var.ty])]
    in_half = any(str(getattr(kind, "dtype", "")) == HALF for kind in types)
    return _Widener.canonicalised(module) if in_half else module


def waiting(board: Board) -> Callable[[Any], bool]:
    """Whether a layer waits for its weights on a board, and half precision does not hold them exactly."""
    cpu = host_of(board)

    def waits(call: Any) -> bool:
        weights = ir.constant_value(call.args[1])
        if weights is None or weights.ndim != 2:
            return False
        data = tuple(ir.shape_of(call.args[0]))
        layer = Dense(data=data, weights=weights.shape, types=ir.types_of(call), constant=True)
        return cpu.with_half_weights(layer) is not None and ir.exactly_in_half(weights) is None

    return waits


class _Halver(_Writer):
    """Decides which values are in half precision.

    Layers are, sums included, except those whose numbers are in `single`. So are operators of values in half that round
    once, such as the sum with a bias. Sigmoids round what they read and compute in half. Other elementwise operators
    compute in single, and the last of a chain rounds to half what is stored.

    If layers are `rounded`, by their numbers, only their weights are.
    """

    def __init__(
        self, module: tvm.IRModule, single: Collection[int] = (), rounded: Collection[int] | None = None
    ) -> None:
        super().__init__(module)
        self.layers = 0
        self._single, self._rounded = frozenset(single), rounded
        # By value, why it is in half precision: the numbers of layers. Those that are rounded are in `_stored`, too.
        self._reasons: dict[Any, frozenset[int]] = {}
        self._stored: set[Any] = set()
        self._readers: dict[Any, list[Any]] = {}
        for each in ir.bindings_of(module["main"]):
            for read in relax.analysis.free_vars(each.value):
                self._readers.setdefault(read, []).append(each.value)

    def layer(self, number: int, call: relax.Call, arguments: list[Any]) -> tuple[Any, Any]:
        """A layer, and why it is in half precision: its number; None if it is not."""
        if number in self._single:
            return self.with_types(call, arguments, SINGLE), None
        return self.with_types(call, arguments, HALF), frozenset([number])

    def weights(self, number: int, value: Any) -> Any:
        """The weights of a layer that computes in single precision: rounded to half if it is to read them."""
        if self._rounded is None or number not in self._rounded:
            return value
        rounded, *_ = _parts(value.value.numpy())
        return ir.constant(rounded)

    def in_half(self, call: relax.Call, arguments: list[Any], reason: Any) -> Any:
        """An operator that rounds once, in half precision."""
        return self.with_types(call, arguments, HALF)

    def with_form(self, call: relax.Call, data: Any, reason: Any) -> Any:
        """A function of rounded data that half precision has a form for."""
        return self.with_types(call, [data], HALF)

    def rounded(self, value: Any, reason: Any) -> Any:
        return self.as_type(value, HALF)

    def operator(self, call: relax.Call, arguments: list[Any]) -> Any:
        if ir.is_call(call, "relax.call_tir", "relax.astype"):
            return relax.Call(call.op, [self.as_type(each, SINGLE) for each in arguments], call.attrs, call.ty_args)
        if is_layer(call):
            number = self.layers
            self.layers += 1
            if self._rounded is not None:
                data, weights = arguments
                return self.with_types(call, [data, self.weights(number, weights)], SINGLE)
            value, reason = self.layer(number, call, arguments)
            return value if reason is None else self._kept(value, reason, stored=True)
        data = self._largest(arguments)
        reasons = [self._reasons[each] for each in data if each in self._reasons]
        if not reasons or not (is_kind(call, Kind.ELEMENTWISE) or _rounds_once(call)):
            return self.with_types(call, arguments, SINGLE)
        reason = frozenset[int]().union(*reasons)
        if operator_name(call) in _WITH_FORMS:
            half = self.with_form(call, self._rounded_for_all(call.args[0], arguments[0], reason), reason)
            return self._kept(half, reason, stored=True)
        if _rounds_once(call) and self._stored.issuperset(data):
            return self._kept(self._rounded_once(call, arguments, reason), reason, stored=True)
        return self._kept(self.with_types(call, arguments, SINGLE), reason, stored=False)

    def _kept(self, value: Any, reason: Any, *, stored: bool) -> Any:
        """A value in half precision, rounded if anything but an elementwise operator reads it."""
        variable = self._new(value)
        if not stored and not all(is_kind(each, Kind.ELEMENTWISE) for each in self._readers.get(self.variable, [])):
            variable, stored = self._new(self.rounded(variable, reason)), True
        self._reasons[variable] = reason
        if stored:
            self._stored.add(variable)
        return variable

    def _rounded_once(self, call: relax.Call, arguments: list[Any], reason: Any) -> Any:
        """An operator in half precision. A constant is added in two parts: a bias's error is the same everywhere."""
        constants = [each for each in arguments if ir.constant_value(each) is not None]
        if not ir.is_call(call, "relax.add") or not constants:
            return self.in_half(call, arguments, reason)
        [data] = [each for each in arguments if each not in constants]
        for part in _parts(constants[0].value.numpy()):
            data = self._new(self.in_half(call, [data, ir.constant(part)], reason))
        return data

    def _rounded_for_all(self, old: relax.Var, value: Any, reason: Any) -> Any:
        """A value that is rounded, for this and all later readers, if it is not yet."""
        if value in self._stored:
            return value
        rounded = self._kept(self.rounded(value, reason), reason, stored=True)
        self.set_var_remap(old, rounded)
        return rounded

    def visit_tuple_getitem_(self, part: relax.TupleGetItem) -> relax.Expr:
        moved = self.visit_expr_post_order(part)
        reason = self._reasons.get(moved.tuple_value)
        return moved if reason is None else self._kept(moved, reason, stored=True)

    def _largest(self, arguments: list[Any]) -> list[Any]:
        """An operator's data of the most values."""
        tensors = [each for each in self._tensors(arguments) if ir.constant_value(each) is None]
        sizes = [math.prod(ir.shape_of(each)) for each in tensors]
        return [each for each, size in zip(tensors, sizes, strict=True) if size == max(sizes)]

    def _tensors(self, arguments: Sequence[Any]) -> list[Any]:
        found = []
        for each in arguments:
            whole = self.bound_value(each)
            if isinstance(whole, relax.Tuple):
                found += self._tensors(whole.fields)
            elif isinstance(each.ty, relax.TensorType):
                found.append(each)
        return found


def _parts(value: np.ndarray) -> list[np.ndarray]:
    """An array rounded to half precision, and what that leaves if anything."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = value.astype(HALF)
        rest = (value - rounded).astype(HALF)
    parts = [rounded, rest] if np.isfinite(rounded).all() and rest.any() else [rounded]
    return [part.astype(SINGLE) for part in parts]


def _rounds_once(call: relax.Call) -> bool:
    """Whether results are some of an operator's operands, or exact results that are rounded once."""
    nearest = ir.is_call(call, "relax.image.resize2d") and call.attrs.method == "nearest_neighbor"
    return nearest or operator_name(call) in _ROUNDED_ONCE


def _halved(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
    half = compilation.half
    if half is None or not half.used:
        return module
    return _Halver.canonicalised(module, {each.number for each in half.single}, half.weights or None)


WIDEN_HALF = Pass("widen-half", "Widen half precision to single; a later pass may choose half again.", _widened)
COMPUTE_IN_HALF = Pass(
    "compute-in-half", "Compute chosen layers, and operators between them, in half precision.", _halved
)


class _TrialWriter(_Halver):
    """Each layer in both precisions, one of which a switch chooses at run time.

    A value is rounded if any of the layers whose numbers are its reason is in half precision.
    Data are multiplied by `MARGIN` before a layer in half precision, which changes no rounding but that of subnormal
    numbers, so that values beyond `LARGEST / MARGIN` become infinite; a layer's peak is its largest value.
    """

    def __init__(self, module: tvm.IRModule, waits: Callable[[Any], bool] | None) -> None:
        super().__init__(module, rounded=None if waits is None else ())
        layers = [each.value for each in ir.bindings_of(module["main"]) if is_layer(each.value)]
        self.places = [place for place, each in enumerate(layers) if waits is None or waits(each)]
        self.described = [_described(layers[place]) for place in self.places]
        self.switches: dict[frozenset[int], relax.Var] = {}
        self._peaks: list[Any] = []

    def written(self) -> tvm.IRModule:
        """The module with the new function, which takes the switches after its inputs."""
        main = self.visit_expr(self.module["main"])
        whole = relax.Function([*main.params, *self.switches.values()], main.body, attrs=main.attrs)
        functions = {**self.module.functions, self.module.get_global_var("main"): whole}
        module = tvm.IRModule(functions, attrs=self.module.attrs)
        return relax.transform.CanonicalizeBindings()(relax.transform.DeadCodeElimination()(module))

    def layer(self, number: int, call: relax.Call, arguments: list[Any]) -> tuple[Any, Any]:
        data, *others = arguments
        single = self._new(self.with_types(call, arguments, SINGLE))
        half = self._in_half(lambda rounded: self._new(self.with_types(call, [rounded, *others], HALF)), data)
        self._peaks.append(self._peak(half))
        if _may_be_winograd(call):
            transformed = self._new(self.emit.multiply(self._peak(data), GROWTH))
            self._peaks[-1] = self.emit.maximum(self._peaks[-1], self.as_type(self.as_type(transformed, HALF), SINGLE))
        reason = frozenset([number])
        return relax.op.where(self._switch(reason), half, single), reason

    def weights(self, number: int, value: Any) -> Any:
        if number not in self.places:
            return value
        chosen = self._constant(value, frozenset([self.places.index(number)]))
        self._peaks.append(self._peak(chosen))
        return chosen

    def in_half(self, call: relax.Call, arguments: list[Any], reason: Any) -> Any:
        operands = [each if ir.constant_value(each) is None else self._constant(each, reason) for each in arguments]
        single = self._new(self.with_types(call, operands, SINGLE))
        return single if precision_of(single) is None else self.rounded(single, reason)

    def _constant(self, value: Any, reason: Any) -> Any:
        """A constant that the switch rounds to half precision."""
        if precision_of(value) is None:
            return value
        known = value.value.numpy()
        rounded, *_ = _parts(known)
        if np.array_equal(rounded, known):
            return value
        return self._new(relax.op.where(self._switch(reason), ir.constant(rounded), value))

    def with_form(self, call: relax.Call, data: Any, reason: Any) -> Any:
        single, half = (self._new(self.with_types(call, [data], each)) for each in (SINGLE, HALF))
        return relax.op.where(self._switch(reason), self.as_type(half, SINGLE), single)

    def rounded(self, value: Any, reason: Any) -> Any:
        return relax.op.where(self._switch(reason), self._in_half(lambda data: data, value), value)

    def outputs(self, results: Any, declared: Any) -> Any:
        whole = self.bound_value(results)
        fields = whole.fields if isinstance(whole, relax.Tuple) else [results]
        return relax.Tuple([*fields, self.emit.concat(relax.Tuple(self._peaks), axis=0)])

    def _switch(self, layers: frozenset[int]) -> relax.Var:
        switch = relax.Var(f"switch{len(self.switches)}", relax.TensorType((1,), "bool"))
        return self.switches.setdefault(layers, switch)

    def _peak(self, value: Any) -> Any:
        """The largest size of a tensor's values, as a tensor of one."""
        return self.emit.reshape(self.emit.max(self.emit.abs(value)), [1])

    def _in_half(self, compute: Callable[[Any], Any], data: Any) -> Any:
        """A result in half precision, as single."""
        rounded = self.emit.astype(self.emit.multiply(data, MARGIN), HALF)
        return self.emit.multiply(self.as_type(self._new(compute(rounded)), SINGLE), 1 / MARGIN)


def _may_be_winograd(call: relax.Call) -> bool:
    """Whether a layer is a convolution that may compute with tiles that are transformed first."""
    if not ir.is_call(call, "relax.nn.conv2d"):
        return False
    steps = {*map(int, call.attrs.strides), *map(int, call.attrs.dilation)}
    return ir.shape_of(call.args[1])[2:] == [3, 3] and steps == {1} and int(call.attrs.groups) == 1


@dataclass(frozen=True)
class Layer:
    """A layer of a trial: a description for people, and the arithmetic operations of one inference."""

    description: str
    operations: int


def _described(call: relax.Call) -> Layer:
    weights, result = ir.shape_of(call.args[1]), ir.shape_of(call)
    if operator_name(call) == "matmul":
        terms = ir.shape_of(call.args[0])[-1]
        text = f"product of {terms} terms, {' x '.join(map(str, result))}"
    else:
        terms = math.prod(weights[1:])
        kernel, pixels = " x ".join(map(str, weights[2:])), " x ".join(map(str, result[2:]))
        text = f"{kernel} convolution, {ir.shape_of(call.args[0])[1]} to {result[1]} channels, {pixels} pixels"
    return Layer(text, 2 * math.prod(result) * terms)


class Trial(NamedTuple):
    """A network whose layers' precision is switched.

    Its last output, `PEAKS`, has the largest value of each layer, which is infinite beyond `LARGEST / MARGIN`.
    """

    network: Network
    layers: list[Layer]
    # By the name of each of its last inputs, the numbers of layers: it states whether any of these is in half
    # precision.
    switches: dict[str, frozenset[int]]
    # The places of its layers among all of the network's, if only their weights are switched.
    weights: list[int] | None


def trial_of(network: Network, module: tvm.IRModule, board: Board) -> Trial:
    """The trial of a network for a board; its module was rewritten by the passes before `COMPUTE_IN_HALF`."""
    waits = None if computes_in_half(board) else waiting(board)
    writer = relax.expr_functor.mutator(_TrialWriter)(module, waits)
    written = writer.written() if writer.described else module
    switches = {f"{SWITCH}{number}": layers for number, layers in enumerate(writer.switches)}
    changed = {
        "module": written,
        "inputs": [*network.inputs, *(TensorSpec(name=name, shape=[1], dtype="bool") for name in switches)],
        "outputs": [*network.outputs, TensorSpec(name=PEAKS, shape=[len(writer.described)], dtype=SINGLE)],
    }
    return Trial(replace(network, **changed), writer.described, switches, writer.places if waits else None)
