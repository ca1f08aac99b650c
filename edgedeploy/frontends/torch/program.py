"""Exported programs of PyTorch: rewritten before TVM's importer translates them, and run."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators on quantised values
from tvm.relax.frontend.torch import from_exported_program

from edgedeploy.compile.passes.constants import bounded
from edgedeploy.errors import ModelError
from edgedeploy.frontends.torch.operators import CONVERSIONS, RECURRENT

_ATTENTION = "scaled_dot_product_attention.default"

# Written out, the first two are products of matrices between reshapes; all of them are translated as they are.
_WHOLE = ("linear.default", "matmul.default", *RECURRENT)

# Operators that read the number in a tensor of one value, and those that state its bounds.
_ITEMS = ("item.default", "_local_scalar_dense.default")
_BOUNDS = ("_assert_scalar.default", "sym_constrain_range.default", "sym_constrain_range_for_size.default")

# Operators of two tensors or numbers, which PyTorch brings to one dtype first; comparisons give booleans.
_ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "atan2", "logaddexp")
_BINARY = (*_ARITHMETIC, "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le", "gt")
# The range of their operands among the arguments.
_OPERANDS = {**dict.fromkeys((*_BINARY, "ge"), (0, 2)), "where": (1, 3), "clamp": (0, 3)}


def imported(archive: bytes) -> tuple[Any, Any]:
    """The exported program in a plain archive, and its module by TVM's importer."""
    program = torch.export.load(io.BytesIO(archive))
    with torch.no_grad():
        resolve_numbers(program)
        module = from_exported_program(
            decomposed(program),
            unwrap_unit_return_tuple=True,
            custom_convert_map=CONVERSIONS,
            run_ep_decomposition=False,
        )
    return program, bounded(module)


def inferred(
    program: Any, inputs: Sequence[str], outputs: Sequence[str], double: bool, tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """One inference by PyTorch, as exported or with float64 instead of float32."""
    module, values = program.module(), [torch.from_numpy(np.array(tensors[name])) for name in inputs]
    if double:
        module = in_double(module)
        values = [value.double() if value.dtype is torch.float32 else value for value in values]
    with torch.no_grad():
        returned = module(*values)
    values = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    return {name: value.numpy() for name, value in zip(outputs, values, strict=True)}


def nodes_of(program: Any) -> Iterator[Any]:
    """The nodes of a program and of regions inside it, such as those of `torch.no_grad()`."""
    for module in program.graph_module.modules():
        yield from module.graph.nodes if hasattr(module, "graph") else ()


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def decomposed(program: Any) -> Any:
    """A program in ATen's core operators, except those that are translated whole; operands of one dtype each."""
    for node in nodes_of(program):
        if _name(node) in RECURRENT:
            _check_recurrent(node)
    attention = [node for node in nodes_of(program) if _name(node) == _ATTENTION]
    table = torch.export.default_decompositions()
    for name in (*_WHOLE, *([_ATTENTION] if all(map(_has_no_mask, attention)) else [])):
        packet, overload = name.split(".")
        table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
    program = program.run_decompositions(table)
    signature = program.graph_signature
    if signature.buffers_to_mutate:
        names = ", ".join(map(repr, signature.buffers_to_mutate.values()))
        raise ModelError(
            f"the network changes its buffer {names}",
            why="its outputs would depend on the inferences before, and a package keeps no such state",
            hints=["make the buffer an input and an output of the network, and export it again"],
        )
    _promote(program)
    return program


def _check_recurrent(node: Any) -> None:
    _, _, weights, biased, count, dropout, training, both, _ = node.args
    if training and dropout:
        raise ModelError("a recurrent layer drops values at random", why="the network was exported for training")
    if len(weights) != count * (1 + both) * (4 if biased else 2):
        raise ModelError("a recurrent layer projects its state", why="no translation of proj_size is known")


def _has_no_mask(node: Any) -> bool:
    """Whether attention has no mask other than causality; PyTorch gives zeros for rows that others mask entirely."""
    masked = len(node.args) > 3 and node.args[3] is not None
    return not masked and node.kwargs.get("attn_mask") is None and not node.kwargs.get("enable_gqa")


def _promote(program: Any) -> None:
    """Bring the operands of binary operators to the dtype that PyTorch computes in, and write their factor out."""
    graph, cast, times = program.graph, torch.ops.aten._to_copy.default, torch.ops.aten.mul.Tensor

    def inserted(target: Any, arguments: tuple[Any, ...], value: Any, **settings: Any) -> Any:
        made = graph.call_function(target, arguments, settings)
        made.meta["val"] = value
        return made

    for node in list(graph.nodes):
        name = getattr(node.target, "_opname", "") if node.op == "call_function" else ""
        if name not in _OPERANDS:
            continue
        first, end = _OPERANDS[name]
        operands = list(node.args[first:end])
        values = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in operands]
        result = node.meta["val"].dtype
        dtype = torch.result_type(*values) if result is torch.bool else result
        alpha = node.kwargs.get("alpha", 1)
        with graph.inserting_before(node):
            for place, value in enumerate(values):
                if not isinstance(value, torch.Tensor):
                    number = value * alpha if place and alpha != 1 else value
                    operands[place] = float(number) if dtype.is_floating_point and number is not None else number
                    continue
                if value.dtype is not dtype:
                    operands[place] = inserted(cast, (operands[place],), value.to(dtype), dtype=dtype)
                if place and alpha != 1:
                    operands[place] = inserted(times, (operands[place], alpha), value.to(dtype))
        if result is torch.bool and name in ("add", "mul"):
            node.target = getattr(torch.ops.aten, {"add": "bitwise_or", "mul": "bitwise_and"}[name]).Tensor
        node.args = (*node.args[:first], *operands, *node.args[end:])
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "alpha"}
    program.graph_module.recompile()


def resolve_numbers(program: Any) -> None:
    """Replace the nodes that read numbers from parameters, buffers or constants by the numbers; in place.

    Ultralytics' heads read the strides of their feature maps so. Numbers that depend on the input are refused.
    """
    graph, signature = program.graph_module.graph, program.graph_signature
    items = [node for node in graph.nodes if _name(node) in _ITEMS]
    if not items:
        return
    names = signature.inputs_to_parameters | signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
    tensors = {**program.constants, **program.state_dict}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    known = {node: tensors[names[node.name]] for node in placeholders if names.get(node.name) in tensors}
    for node in items:
        number = _computed(node, known)
        for user in [each for each in node.users if _name(each) in _BOUNDS]:
            graph.erase_node(user)
        node.replace_all_uses_with(number)
        graph.erase_node(node)
    program.graph_module.recompile()


def _computed(node: Any, known: dict[Any, Any]) -> Any:
    """The value of a node, computed by PyTorch and added to `known`."""
    if node in known:
        return known[node]
    if node.op == "placeholder":
        raise ModelError(
            "a number depends on the network's input",
            why=f"it is computed from input {node.name!r}, and used as a number instead of a tensor",
            hints=["export the network without .item(), int() or float() of computed values"],
        )
    args, kwargs = (
        torch.fx.node.map_arg(each, lambda inner: _computed(inner, known)) for each in (node.args, node.kwargs)
    )
    known[node] = node.target(*args, **kwargs)
    return known[node]


def in_double(module: Any) -> Any:
    """A copy of a module that computes in float64 instead of float32."""

    def wider(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    module = copy.deepcopy(module).double()
    for part in (each for each in module.modules() if isinstance(each, torch.fx.GraphModule)):
        for node in list(part.graph.nodes):
            name = str(node.target)
            if name == "wrap_with_autocast":  # device, dtype, enabled
                node.args = (*node.args[:2], False, *node.args[3:])
            if name.startswith("aten._assert_tensor_metadata"):
                part.graph.erase_node(node)
                continue
            node.args, node.kwargs = (torch.fx.node.map_aggregate(each, wider) for each in (node.args, node.kwargs))
        part.recompile()
    return module
