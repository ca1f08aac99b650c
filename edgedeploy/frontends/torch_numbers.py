"""Numbers that exported programs read from tensors: those of constants become known, any other is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgedeploy.errors import ModelError

# Of a tensor with one value the number, and what says of a number within which bounds it is.
_ITEMS = ("item.default", "_local_scalar_dense.default")
_BOUNDS = ("_assert_scalar.default", "sym_constrain_range.default", "sym_constrain_range_for_size.default")


def know_numbers(program: Any) -> None:
    """Put numbers in the place of the nodes that read them from parameters, buffers or constants; in place.

    Ultralytics' heads read the strides of their feature maps so.

    Raises:
        ModelError: a number depends on the network's input.
    """
    graph = program.graph_module.graph
    items = [node for node in graph.nodes if _name(node) in _ITEMS]
    if not items:
        return
    tensors = _tensors(program)
    for node in items:
        number = _computed(node, tensors)
        for user in [each for each in node.users if _name(each) in _BOUNDS]:
            graph.erase_node(user)
        node.replace_all_uses_with(number)
        graph.erase_node(node)
    program.graph_module.recompile()


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _tensors(program: Any) -> dict[str, Any]:
    """By placeholder, the tensors that a program holds."""
    signature = program.graph_signature
    held = signature.inputs_to_parameters | signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
    every = {**program.constants, **program.state_dict}
    return {name: every[where] for name, where in held.items() if where in every}


def _computed(node: Any, tensors: Mapping[str, Any]) -> Any:
    """What a node gives, by PyTorch."""
    import torch

    if node.op == "placeholder":
        if node.name in tensors:
            return tensors[node.name]
        raise ModelError(
            "a number depends on the network's input",
            why=f"it is computed from input {node.name!r}, and used as a number instead of a tensor",
            hints=["export the network without .item(), int() or float() of what it computes"],
        )
    given = [torch.fx.node.map_arg(each, lambda inner: _computed(inner, tensors)) for each in (node.args, node.kwargs)]
    return node.target(*given[0], **given[1])
