"""What the how-tos of CONTRIBUTING.md add, used: runs in a copy of the tree in which they were followed."""

from pathlib import Path

import numpy as np

from support.networks import Graph


def check_records() -> None:
    """The board, the decoder and the backend."""
    from pydantic import TypeAdapter

    from edgedeploy.demo.spec import AnyDecoder
    from edgedeploy.target.board import BOARDS, load_board
    from edgedeploy.target.devices import kind
    from edgedeploy.vision.geometry import Frame

    assert "cm4" in BOARDS.names()
    one, other = (load_board(name).model_dump(exclude={"description", "core_model"}) for name in ("cm4", "rpi4"))
    assert one == other
    assert kind("toy").__name__ == "Toy"

    decoder = TypeAdapter(AnyDecoder).validate_python({"kind": "one-box", "threshold": 0.25})
    outputs = {"output": np.array([[0.5, 0, 0.25, 0.5, 1]], np.float32)}
    [found] = decoder.decode(outputs, Frame((200, 400), (100, 100), (0.25, 0.5)), ["cat"])
    assert (found.label, found.score, found.box) == ("cat", 0.5, (0, 50, 200, 200))


def check_networks() -> None:
    """The operators, the template and the format; outputs are compared with onnxruntime's."""
    from tvm import relax

    from edgedeploy.compile.ir import optraits

    two = np.full((2, 3), 2, np.float32)
    call = relax.BlockBuilder().normalize(relax.op.ewise_fma(*[relax.const(two)] * 3))
    np.testing.assert_array_equal(optraits.evaluate(call, [two] * 3), two * 3)

    gelu = Graph()
    result = gelu.node("QuickGelu", gelu.input("x", [1, 40]), domain="com.microsoft", alpha=1.5)
    assert templates(gelu.save(Path("gelu.onnx"), result)) == {"general"}

    for rows, columns in ((64, 32), (37, 5), (300, 1001)):
        network = Graph()
        product = network.node("MatMul", network.input("a", [rows, columns]), network.input("x", [columns]))
        assert templates(network.save(Path(f"{rows}.onnx"), product)) == {"vectors"}

    np.savetxt("net.matrix", np.random.default_rng(2).standard_normal((12, 7)), header="matrix", comments="")
    assert templates(Path("net.matrix")) == {"matmul"}


def templates(path: Path) -> set[str]:
    """The templates that schedule a network, whose outputs are right."""
    from edgedeploy.compile.pipeline import compile_network
    from edgedeploy.frontends.formats import describing
    from edgedeploy.target.board import load_board
    from support.agreement import random_inputs, results_of

    network = describing(path)[0].read([path], {})
    compiled = compile_network(network, load_board("local"))
    for found, wanted in results_of(compiled, network, random_inputs(network)):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    return {*compiled.templates.values()}
