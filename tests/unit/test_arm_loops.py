"""Code for ARM: inner loops keep values in registers and are nearly as fast as multiply-adds; whole networks."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import arm_loops
import numpy as np
import onnx
import pytest
from assembly import Loop, innermost_loops, registers
from layers import read_layers
from mca import Analyser
from support.cpus import needs_mca
from support.emulated import emulated_outputs
from support.networks import Quantised, begun
from support.quantised_networks import FORMS, quantise, random_samples

from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import ToolchainError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

FIRST = ["first 3x3 s2", "first 7x7 s2"]
DENSE = [
    *("1x1 32-64 112", "1x1 144-24 56", "1x1 512-512 14", "1x1 1024-1024 7", "1x1 s2 256-512 56", "1x1 64-255 13"),
    *("3x3 64-64 56", "3x3 512-512 7", "3x3 s2 64-128 56", "5x5 24-48 20", "3x3 groups 4", "dense 1024-1000"),
]
DEPTHWISE = ["depthwise 3x3 112", "depthwise 3x3 s2 112", "depthwise 5x5 28"]

# Where LLVM unrolls depthwise sums further than tiles are chosen for.
SPILLING = [("rpi3", "depthwise 3x3 s2 112")]
REGISTERS_ONLY = [
    (board, layer)
    for board in ("rpi3", "rpi4", "rpi5", "rpi-armhf")
    for layer in (*FIRST, *DENSE, *DEPTHWISE)
    if (board, layer) not in SPILLING
]

AARCH64 = """
	.type	first,@function
first:
	sub	sp, sp, #32
.LBB0_1:
	mov	x9, x1
.LBB0_2:
	ldp	q1, q2, [x9]
	ldr	q3, [sp, #16]
	fmla	v0.4s, v1.4s, v3.s[0]
	fmla	v4.2s, v2.2s, v3.s[0]
	subs	x10, x10, #1
	b.ne	.LBB0_2
	str	q0, [x2]
	cbnz	x11, .LBB0_1
	ret
	.type	second,@function
second:
.LBB1_1:
	str	q0, [x0], #16
	b	.LBB1_1
"""

ARM = """
	.type	third,%function
third:
.LBB0_1:
	vld1.32	{d4[], d5[]}, [r0:32]!
	add	lr, sp, #16
	vstmia	lr, {d16, d17}
	vfma.f32	q0, q1, q2
	vadd.f32	d6, d7, d8
	subs	r1, r1, #1
	bne	.LBB0_1
	bx	lr
"""


def test_innermost_loops_are_found_with_what_they_do() -> None:
    inner, copy = innermost_loops(AARCH64)
    assert (inner.function, copy.function) == ("first", "second")
    assert inner.instructions[0] == "ldp\tq1, q2, [x9]"
    assert inner.instructions[-1] == "b.ne\t.LBB0_2"
    assert registers(inner.multiply_adds) == 1.5
    assert len(inner.loads) == 2
    assert inner.stack_accesses == ("ldr\tq3, [sp, #16]",)
    assert inner.accumulates
    assert copy.stores
    assert not copy.accumulates


def test_loops_of_32_bit_arm() -> None:
    [loop] = innermost_loops(ARM)
    assert loop.multiply_adds == ["vfma.f32\tq0, q1, q2"]
    assert registers(loop.arithmetic) == 1.5
    assert loop.stack_accesses == ("vstmia\tlr, {d16, d17}",)
    assert len(loop.loads) == len(loop.stores) == 1
    assert loop.accumulates


@pytest.fixture(scope="module")
def loops_of(tmp_path_factory: pytest.TempPathFactory):
    """The hot loops of a layer on a board."""

    @cache
    def loops(board: str, layer: str) -> list[Loop]:
        path = tmp_path_factory.mktemp("layer") / "layer.onnx"
        onnx.save(read_layers()[layer].model(), path)
        return arm_loops.hot_loops(compile_network(read_onnx(path), load_board(board)))

    return loops


@pytest.mark.quick("rpi5-1x1 *", "*-3x3 64-64 56", "*-depthwise 3x3 112")
@pytest.mark.parametrize(("board", "layer"), REGISTERS_ONLY)
def test_inner_loops_leave_the_stack_alone(loops_of, board: str, layer: str) -> None:
    """Winograd's transforms hold more values than there are registers; its sums must not."""
    loops = [loop for loop in loops_of(board, layer) if loop.accumulates or "depthwise" in layer]
    assert loops
    for loop in loops:
        assert loop.stack_accesses == ()


@pytest.mark.quick("3x3 64-64 56", "1x1 512-512 14")
@pytest.mark.parametrize("layer", [*FIRST, *DENSE])
def test_32_bit_arm_multiplies_and_adds_in_one_instruction(loops_of, layer: str) -> None:
    for loop in loops_of("rpi-armhf", layer):
        assert loop.multiply_adds
        assert loop.multiply_adds == loop.arithmetic or not loop.accumulates


@needs_mca
@pytest.mark.quick("3x3 64-64 56", "1x1 512-512 14")
@pytest.mark.parametrize("layer", [*FIRST, *DENSE[:-1]])
def test_sums_on_cortex_a72_take_no_longer_than_their_multiply_adds(loops_of, layer: str) -> None:
    analyser = Analyser(load_board("rpi4"))
    predictions = [analyser.predict(loop) for loop in loops_of("rpi4", layer) if loop.accumulates]
    assert predictions
    assert max(prediction.ratio for prediction in predictions) <= 1.10


@pytest.mark.quick("depthwise 3x3 112")
@needs_mca
@pytest.mark.parametrize("layer", DEPTHWISE)
def test_depthwise_loops_on_cortex_a72_take_no_longer_than_their_arithmetic(loops_of, layer: str) -> None:
    analyser = Analyser(load_board("rpi4"))
    for loop in loops_of("rpi4", layer):
        prediction = analyser.predict(loop)
        assert prediction.cycles <= 1.10 * prediction.arithmetic


@pytest.mark.quick("rpi5")
@needs_mca
@pytest.mark.parametrize("board", arm_loops.BOARDS)
def test_a_network_is_reported_for_each_board(
    board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(read_layers()["1x1 1024-1024 7"].model(), tmp_path / "net.onnx")
    monkeypatch.setattr(sys, "argv", ["arm_loops.py", str(tmp_path / "net.onnx"), "--boards", board, "--json"])
    arm_loops.main()
    records = json.loads(capsys.readouterr().out)
    assert {(record["board"], record["network"]) for record in records} == {(board, "net.onnx")}
    assert all(record["cycles"] > 0 and record["bound"] > 0 for record in records)


def test_a_missing_llvm_mca_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError) as error:
        Analyser(load_board("rpi4"))
    assert any("apt install llvm-19" in hint for hint in error.value.hints)


@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5"])
def test_sums_of_bytes_stay_in_registers(tmp_path: Path, board: str) -> None:
    """Cortex-A53's too, for which LLVM would unroll them further."""
    sums = [loop for loop in innermost_loops(code_of_bytes(tmp_path, board, 128)) if loop.accumulates]
    assert sums
    assert [loop.stack_accesses for loop in sums] == [()] * len(sums)
    assert all(loop.products > 2 * len(loop.instructions) for loop in sums)


@pytest.mark.parametrize(("inputs", "converted"), [(240, False), (272, True)])
def test_sums_below_2_to_the_22_need_no_conversion_on_cortex_a76(tmp_path: Path, inputs: int, converted: bool) -> None:
    """So many times -127 by -128, and the bias: what data there are makes no difference."""
    assert ("scvtf" in code_of_bytes(tmp_path, "rpi5", inputs)) is converted


def code_of_bytes(folder: Path, board: str, inputs: int) -> str:
    """The assembly of a convolution of one pixel with weights of -127 and 127, from bytes to bytes."""
    graph = Quantised()
    steps = [graph.weight(np.float32(1 / 64)), graph.weight(np.int8(0))]
    weights = graph.stored(graph.random.choice([-127, 127], (128, inputs, 1, 1)).astype(np.int8), 1 / 128)
    data = graph.input("data", [1, inputs, 14, 14], onnx.TensorProto.INT8)
    total = graph.node("Conv", graph.node("DequantizeLinear", data, *steps), weights)
    path = graph.save(folder / "net.onnx", graph.node("QuantizeLinear", total, *steps))
    return compile_network(read_onnx(path), load_board(board)).code.inspect("asm")


# Small quantised networks whole, each function by the code of an ARM board under qemu, give what onnxruntime gives.

BOARDS = ["rpi3", "rpi4", "rpi5", "rpi-armhf"]


def detector(folder: Path) -> Path:
    """What small detectors are made of: a first layer, depthwise and 1x1 convolutions, a sum, a gate, two scales."""
    graph, image = begun(1, 3, 32, 48, opset=17)

    def separable(value: str, inputs: int, outputs: int, strides: int = 1) -> str:
        depthwise = graph.conv(value, inputs, inputs, 3, group=inputs, pads=[1] * 4, strides=[strides] * 2)
        return graph.conv(graph.clip(depthwise, 0, 6), inputs, outputs, 1)

    first = graph.clip(graph.conv(image, 3, 8, 3, pads=[1] * 4, strides=[2, 2]), 0, 6)
    second = graph.clip(separable(first, 8, 16), 0, 6)
    third = graph.node("Add", separable(second, 16, 16), second)
    gate = graph.node("Sigmoid", graph.conv(graph.node("GlobalAveragePool", third), 16, 16, 1))
    fine = graph.node("Mul", third, gate)
    coarse = graph.node("LeakyRelu", separable(fine, 16, 40, 2), alpha=0.1)
    narrow = graph.node("Relu", graph.conv(coarse, 40, 24, 3, pads=[1] * 4))
    wide = graph.conv(narrow, 24, 24, 5, group=24, pads=[2] * 4)
    boxes = graph.conv(graph.node("Concat", graph.doubled(wide), fine, axis=1), 40, 12, 1)
    classes = graph.node("Gemm", graph.node("Flatten", graph.node("GlobalAveragePool", wide)), graph.normal(24, 11))
    return graph.save(folder / "float.onnx", boxes, classes, graph.node("Softmax", classes))


NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("pairs-s8s8-channels", {}),
    "uint8": ("pairs-u8u8", {}),
    "layers-only": ("pairs-s8s8-channels", {"op_types_to_quantize": ["Conv", "Gemm"]}),
}


@pytest.mark.quick("int8-rpi3", "layers-only-rpi4", "uint8-rpi-armhf")  # each network
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_gives_what_onnxruntime_gives(tmp_path: Path, board: str, kind: str) -> None:
    form, options = NETWORKS[kind]
    source = detector(tmp_path)
    path = quantise(source, tmp_path / "net.onnx", FORMS[form], random_samples(source), **options)
    [sample, *_] = random_samples(source)
    lowered = lower_network(read_onnx(path), load_board(board))
    integers = [name for name, each in lowered.functions.items() if each.template.startswith("integer")]
    assert len(integers) >= 8  # and four depthwise ones, as the board's cost says
    outputs = emulated_outputs(lowered, load_board(board), sample, tmp_path)
    for found, wanted in zip(outputs, cpu_session(path).run(None, sample), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # onnxruntime's softmax of uint8 rounds its exponentials to integers.
        step = 1.01 / 255 if form == "pairs-u8u8" and found is outputs[-1] else 0
        np.testing.assert_allclose(found, wanted, rtol=0, atol=step)
