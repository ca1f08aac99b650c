"""A Darknet network in ONNX's terms."""

from __future__ import annotations

from edgedeploy.frontends.darknet.layer import INPUT, Plan
from edgedeploy.frontends.darknet.plan import INPUT_NAME
from edgedeploy.frontends.darknet.weights import Weights
from edgedeploy.frontends.format import Converted
from edgedeploy.frontends.graph import Graph


def converted(name: str, plan: Plan, weights: Weights) -> Converted:
    """Write a network.

    A layer's last node is named after its section and number, such as `convolutional_3`, and the nodes within it
    after that.

    Args:
        name: the network's.
        plan: its layers.
        weights: where their weights come from.

    Raises:
        ModelError: see `Weights.take`.
    """
    graph = Graph(name)
    values = {INPUT: graph.input(INPUT_NAME, [plan.batch, *plan.image])}
    names: list[str] = []
    for index, layer in enumerate(plan.layers):
        taken = [weights.take(layer, parameter) for parameter in layer.parameters]
        names.append(f"{layer.section.kind}_{index}")
        values[index] = layer.write(graph, names[index], [values[source] for source in layer.inputs], taken)
    heads = [index for index, layer in enumerate(plan.layers) if layer.detects]
    outputs = heads or [index for index, layer in enumerate(plan.layers) if layer.counts][-1:]
    for index in outputs:
        if values[index] != names[index]:
            values[index] = graph.node("Identity", values[index], name=names[index])
    model = graph.model([values[index] for index in outputs])
    return Converted(model, [layer.head for layer in plan.layers if layer.head is not None])
