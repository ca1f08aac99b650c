"""Single layers, those of integers with what follows them, compiled for a CPU and run; and networks of one or two."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, te

from edgedeploy.compile.backends import backend_of, host_of
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.integers.quantisation import Steps, rounded
from edgedeploy.compile.ir.expressions import Emitter
from edgedeploy.compile.ir.types import is_floating
from edgedeploy.compile.layers import AnyAnchorOp, BatchMatmul, FirstConvolution, Product
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.output.codegen import THREAD_POOL, link_shared
from edgedeploy.compile.passes.fusion import LAYER_ATTRIBUTE, FusedFunction, fused_functions
from edgedeploy.compile.pipeline import compile_network, optimise
from edgedeploy.compile.schedules import Scheduled
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.target.board import Board, load_board
from support.agreement import assert_agrees, convolved
from support.emulated import emulated_program
from support.networks import Graph, begun


@dataclass(frozen=True)
class Requantisation:
    """What makes bytes of sums: `clip(rint(float32(sum + bias) * scale) + zero_point, low, high)`.

    `largest` is what no product exceeds.
    """

    bias: np.ndarray
    scale: np.ndarray
    zero_point: int
    low: int
    high: int
    dtype: str
    largest: float


@dataclass(frozen=True)
class Case:
    layer: AnyAnchorOp
    data: np.ndarray
    weights: np.ndarray
    tail: Requantisation

    @property
    def sums(self) -> np.ndarray:
        return exact_sums(self.layer, self.data, self.weights)

    @property
    def expected(self) -> np.ndarray:
        tail, sums = self.tail, self.sums + self.tail.bias
        assert np.abs(sums).max() < 2**31
        real = np.rint(sums.astype(np.int32).astype(np.float32) * tail.scale) + np.float32(tail.zero_point)
        return np.clip(real, tail.low, tail.high).astype(tail.dtype)


def window(
    kernel: int, zero_point: float = 0, *, stride: int = 1, dilation: int = 1, padding: int | None = None
) -> Window:
    """A square one, with as much padding as keeps the size of feature maps at a stride of one."""
    around = kernel // 2 * dilation if padding is None else padding
    return Window((kernel, kernel), (stride, stride), (dilation, dilation), (around,) * 4, float(zero_point))


def exact_sums(layer: AnyAnchorOp, data: np.ndarray, weights: np.ndarray, dtype: type = np.int64) -> np.ndarray:
    wide, weights = data.astype(dtype), weights.astype(dtype)
    if isinstance(layer, Product):
        transposed = isinstance(layer, BatchMatmul) and layer.transposed
        return np.asarray(wide @ (np.swapaxes(weights, -2, -1) if transposed else weights))
    if not isinstance(layer, FirstConvolution):
        wide = np.moveaxis(wide, 3, 1)
    window, (rows, columns) = layer.window, layer.size
    top, left, bottom, right = window.padding
    wide = np.pad(wide, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=window.padding_value)
    oihw = weights.reshape(*window.kernel, layer.inputs, layer.channels).transpose(3, 2, 0, 1)
    found = convolved(wide, oihw, stride=window.strides, dilation=window.dilation)
    return np.moveaxis(found, 1, 3)[:, :rows, :columns]


def random_case(layer: AnyAnchorOp, dtype: str, *, growth: float = 1, zero_point: int = 117) -> Case:
    """Random integers over the whole ranges of their types, and runs of extreme ones.

    `growth` is how many times larger than usual results are before bounds; `zero_point` counts from the least byte.
    """
    random, limits = np.random.default_rng(0), np.iinfo(layer.types.data)
    data = random.integers(limits.min, limits.max + 1, layer.data).astype(layer.types.data)
    data.flat[: data.size // 8] = limits.max
    data.flat[-data.size // 8 :] = limits.min
    low, high = (-255, 255) if layer.types.weights == "int16" else (-127, 128)
    weights = random.integers(low, high, layer.weights).astype(layer.types.weights)
    weights[..., 0] = high - 1
    weights[..., -1] = low
    channels = layer.channels
    bias = random.integers(-(2**14), 2**14, channels).astype(np.int32)
    bound = np.iinfo(dtype)
    scale = (growth * random.uniform(0.5, 2, channels) / (40 * layer.terms**0.5 * (high - 1) / 127)).astype(np.float32)
    largest = float(np.abs((exact_sums(layer, data, weights) + bias) * scale).max())
    tail = Requantisation(bias, scale, bound.min + zero_point, bound.min + 3, bound.max - 1, dtype, largest)
    return Case(layer, data, weights, tail)


def requantised_group(layer: AnyAnchorOp, tail: Requantisation) -> FusedFunction:
    """The function of a layer and of what makes bytes of its sums."""
    build, channels = relax.BlockBuilder(), layer.channels
    types = [(layer.data, layer.types.data), (layer.weights, layer.types.weights)]
    types += [((channels,), "int32"), ((channels,), "float32")]
    parameters = [relax.Var(f"p{index}", relax.TensorType(*each)) for index, each in enumerate(types)]
    with build.function("main", parameters):
        with build.dataflow():
            form, said = layer.canonical(), {LAYER_ATTRIBUTE: layer.model_dump_json()}
            value = build.call_te(
                lambda *tensors: form(*tensors), *parameters[:2], primfunc_name_hint=layer.name, primfunc_attrs=said
            )
            value = build.emit(value)
            value = build.emit(relax.op.add(value, parameters[2]))
            value = build.emit(relax.op.multiply(relax.op.astype(value, "float32"), parameters[3]))
            steps = Steps(np.float32(1), tail.zero_point, tail.dtype)
            output = build.emit_output(rounded(Emitter(build), value, steps, (tail.low, tail.high), tail.largest))
        build.emit_func_output(output)
    module = relax.transform.LegalizeOps()(build.get())
    module = relax.transform.FuseOps()(relax.transform.AnnotateTIROpPattern()(module))
    return next(each for each in fused_functions(module).values() if isinstance(each.function, relax.Function))


def scheduled(group: FusedFunction, board: Board, chosen: Configuration) -> Scheduled:
    with tvm.target.Target(board.cpu_target()):
        return host_of(board).configured(group, chosen, {group.weights})


def assembly(function: tvm.tirx.PrimFunc, board: Board, folder: Path) -> str:
    from edgedeploy.compile.backends.cpu import codegen

    module = tvm.IRModule({"layer": function.with_attr("global_symbol", "layer")})
    library = codegen.write_object(module, tvm.target.Target(board.cpu_target()), folder / "layer.o")
    return str(library.inspect_source("asm"))


def results(case: Case, board: Board, chosen: Configuration, folder: Path) -> tuple[np.ndarray, str]:
    """What a CPU makes of a case in a configuration, and the code."""
    done = scheduled(requantised_group(case.layer, case.tail), board, chosen)
    weights = done.packing.pack(case.weights) if done.packing else case.weights
    tensors = [case.data, weights, case.tail.bias, case.tail.scale]
    return run_function(done.function, tensors, np.zeros(case.expected.shape, case.tail.dtype), board, folder)


def run_function(
    function: tvm.tirx.PrimFunc, tensors: list[np.ndarray], empty: np.ndarray, board: Board, folder: Path
) -> tuple[np.ndarray, str]:
    """What a scheduled function makes of tensors on a CPU, in the shape and type of an empty array, and the code."""
    code = assembly(function, board, folder)
    if board.is_x86 or board.runs_here:
        link_shared([folder / "layer.o", THREAD_POOL], folder / "layer.so", board)
        output = tvm.runtime.tensor(empty)
        called = tvm.runtime.load_module(str(folder / "layer.so"))["layer"]
        called(*map(tvm.runtime.tensor, tensors), output)
        return np.asarray(output.numpy()), code
    program = emulated_program([folder / "layer.o"], board, folder)
    return program("layer", [*tensors, empty])[-1], code


LOCAL = load_board("local")


def computed_and_exact(layer: AnyAnchorOp, chosen: Configuration, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """What a layer makes of random numbers in a configuration, and in float64."""
    data, weights = _random(layer.data, layer.types.data, 1), _random(layer.weights, layer.types.weights, 2)
    backend, tensors = backend_of(LOCAL), [te.placeholder(each.shape, str(each.dtype)) for each in (data, weights)]
    canonical = te.create_prim_func([*tensors, layer.canonical()(*tensors)])
    with tvm.target.Target(LOCAL.cpu_target()):
        packable = {1} if layer.constant else set[int]()
        done = backend.configured(FusedFunction(layer, canonical, tvm.IRModule()), chosen, packable)
    packed = done.packing.pack(weights) if done.packing else weights
    result = canonical.params[-1].ty
    empty = np.zeros([int(size) for size in result.shape], str(result.dtype))
    computed, _ = run_function(done.function, [data, packed], empty, LOCAL, folder)
    return computed, exact_sums(layer, data, weights, np.float64)


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.std(found.astype(np.float64) - wanted) / np.std(wanted))


def _random(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if is_floating(dtype):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max + 1, shape).astype(dtype)


def convolution(path: Path, size: int, inputs: int, outputs: int, kernel: int, **attributes: object) -> Network:
    """Two convolutions: the first one reads NCHW, the second is the one that is asked for."""
    graph, data = begun(1, 3, size, size)
    first = graph.node("Relu", graph.conv(data, 3, inputs, 3, pads=[1, 1, 1, 1]))
    second = graph.node("Relu", graph.conv(first, inputs, outputs, kernel, **attributes))
    return read_onnx(graph.save(path / "net.onnx", second))


def dense(path: Path, rows: int, terms: int, columns: int) -> Network:
    graph = Graph()
    product = graph.node("MatMul", graph.input("data", [rows, terms]), graph.normal(terms, columns))
    return read_onnx(graph.save(path / "net.onnx", graph.node("Add", product, graph.normal(columns))))


NETWORKS = {
    "3x3": lambda path: convolution(path, 14, 16, 32, 3, pads=[1, 1, 1, 1]),
    "3x3 of a small image": lambda path: convolution(path, 7, 64, 64, 3, pads=[1, 1, 1, 1]),
    "1x1": lambda path: convolution(path, 9, 32, 48, 1),
    "strided": lambda path: convolution(path, 15, 8, 24, 3, strides=[2, 2], pads=[1, 1, 0, 0]),
    "grouped": lambda path: convolution(path, 8, 16, 32, 3, group=4),
    "depthwise": lambda path: convolution(path, 13, 32, 32, 3, group=32, pads=[1, 1, 1, 1]),
    "dense": lambda path: dense(path, 4, 64, 90),
    "one row": lambda path: dense(path, 1, 128, 1000),
}


def is_of_layer(workload: tvm.IRModule, layer: AnyAnchorOp) -> bool:
    """Whether a workload is a layer's: both have the same tensors."""
    shapes = [tuple(map(int, parameter.ty.shape)) for parameter in workload["main"].params]
    return shapes[:2] == [layer.data, layer.weights]


def last_layer(network: Network, board: Board) -> AnyAnchorOp:
    return list(optimise(network, board).groups.values())[-1].layer


def assert_takes(
    network: Network, board: Board, chosen: Configuration, tolerance: float = 1e-4, device: Any = None
) -> None:
    """A network with its last layer in a configuration gives the reference's outputs."""
    layer = last_layer(network, board)
    compiled = compile_network(network, board, tuned=lambda workload: chosen if is_of_layer(workload, layer) else None)
    assert chosen in [entry.configuration for entry in compiled.functions.values() if entry.tuned]
    assert_agrees(compiled, network, tolerance, device)
