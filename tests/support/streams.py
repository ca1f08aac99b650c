"""A network of streams, which tests build: it takes one step of a sequence and its state."""

from __future__ import annotations

from pathlib import Path

from onnx import helper

from support.networks import Graph

FEATURES, HIDDEN = 6, 16


def streamed_lstm(path: Path) -> Path:
    """An LSTM of one step, with `frame`, `h` and `c` for inputs, and `score`, `hn` and `cn` for outputs."""
    graph = Graph(opset=14)
    gates = [graph.normal(1, 4 * HIDDEN, size) for size in (FEATURES, HIDDEN)]
    states = [graph.input(name, [1, 1, HIDDEN]) for name in ("h", "c")]
    frame = graph.input("frame", [1, 1, FEATURES])
    every = graph.node("LSTM", frame, *gates, graph.normal(1, 8 * HIDDEN), "", *states, outputs=3, hidden_size=HIDDEN)
    product = graph.node("MatMul", every, graph.normal(HIDDEN, 1))
    graph.nodes.append(helper.make_node("Sigmoid", [product], ["score"], name="score"))
    names = {f"{every}_1": "hn", f"{every}_2": "cn"}
    for node in graph.nodes:
        node.output[:] = [names.get(name, name) for name in node.output]
    return graph.save(path, "score", "hn", "cn")
