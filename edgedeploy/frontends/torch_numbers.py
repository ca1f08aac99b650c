"""Numbers that exported programs read from tensors: those of constants become known, any other is refused."""

from __future__ import annotations

from typing import Any

from edgedeploy.errors import ModelError

# Of a tensor with one value the number, and what says of a number within which bounds it is.
_ITEMS = ("item.default", "_local_scalar_dense.default")
_BOUNDS = ("_assert_scalar.default", "sym_constrain_range.default", "sym_constrain_range_for_size.default")


def know_numbers(program: Any) -> None:
    """Put numbers in the place of the nodes that read them from parameters, buffers or constants; in place.

    Ultralytics' heads read the strides of their feature maps so.
    """
    graph = program.graph_module.graph
    items = [node for node in graph.nodes if _name(node) in _ITEMS]
    if not items:
        return
    known = _tensors(program)
    for node in items:
        number = _computed(node, known)
        for user in [each for each in node.users if _name(each) in _BOUNDS]:
            graph.erase_node(user)
        node.replace_all_uses_with(number)
        graph.erase_node(node)
    program.graph_module.recompile()


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _tensors(program: Any) -> dict[Any, Any]:
    """By placeholder's node, the tensors that a program holds."""
    signature = program.graph_signature
    held = signature.inputs_to_parameters | signature.inputs_to_buffers | signature.inputs_to_lifted_tensor_constants
    every = {**program.constants, **program.state_dict}
    places = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    return {node: every[held[node.name]] for node in places if held.get(node.name) in every}


def _computed(node: Any, known: dict[Any, Any]) -> Any:
    """What a node gives, by PyTorch; it is noted among what is known, since others may read it too."""
    import torch

    if node in known:
        return known[node]
    if node.op == "placeholder":
        raise ModelError(
            "a number depends on the network's input",
            why=f"it is computed from input {node.name!r}, and used as a number instead of a tensor",
            hints=["export the network without .item(), int() or float() of what it computes"],
        )
    given = [torch.fx.node.map_arg(each, lambda inner: _computed(inner, known)) for each in (node.args, node.kwargs)]
    known[node] = node.target(*given[0], **given[1])
    return known[node]
