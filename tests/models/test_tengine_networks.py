"""The tmfiles of the development material: equal to the ONNX files of the same networks, and sound against damage."""

import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.agreement import assert_near, computed, outputs_of, run_onnx
from support.demo_runs import pixels_for
from support.fuzzing import survive
from support.tmfiles import integers_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import ModelError
from edgedeploy.frontends.tengine import FORMAT
from edgedeploy.frontends.tengine.structure import read_structure
from edgedeploy.target.board import load_board
from edgedeploy.zoo.entry import MODELS

# The entry of each tmfile in the zoo, with that of its ONNX file.
SAME = {
    "retinaface-tengine": "retinaface-316x474",
    "yolo-fastest-1.1-tengine": "yolo-fastest-1.1",
    "landmark-106-tengine": "landmark-106",
    "resnet18-cifar10-tengine": "resnet18-cifar10",
}

Outputs = dict[str, np.ndarray]


def file_of(name: str, shared: Path) -> Path:
    [path] = (shared / "models").rglob(MODELS.load(name).files[0].name)
    return path


def converted(name: str, shared: Path) -> onnx.ModelProto:
    """A network of the zoo, in the shape that the zoo states."""
    given = MODELS.load(name).input
    return FORMAT.convert([file_of(name, shared)], {given.name: given.shape}).model


def assert_equal(found: Outputs, expected: Outputs) -> None:
    """The same values, by name, or in the same order where the names differ; both may count sizes of 1 or not."""
    if not found.keys() >= expected.keys():
        found = dict(zip(expected, found.values(), strict=True))
    squeezed = {name: wanted.squeeze() for name, wanted in expected.items()}
    assert_near({name: found[name].squeeze() for name in expected}, squeezed, 1e-4)


@pytest.mark.parametrize("name", SAME)
def test_they_compute_what_the_onnx_files_do(name: str, shared: Path) -> None:
    [data] = pixels_for(name).values()
    assert_equal(run_onnx(converted(name, shared), data), run_onnx(file_of(SAME[name], shared), data))


@pytest.mark.parametrize("name", ["landmark-106-tengine", "resnet18-cifar10-tengine"])
def test_compiled_they_compute_what_the_onnx_files_do(name: str, shared: Path) -> None:
    inputs = pixels_for(name)
    network = FORMAT.read([file_of(name, shared)], {given: array.shape for given, array in inputs.items()})
    found = zip((spec.name for spec in network.outputs), computed(network, inputs), strict=True)
    assert_equal(dict(found), run_onnx(file_of(SAME[name], shared), *inputs.values()))


@pytest.mark.slow
def test_a_network_of_int8_gives_the_integers_of_tengine_s_kernels(shared: Path) -> None:
    path = shared / "models" / "tengine_int8" / "resnet18-cifar10-nosoftmax-relu_int8.tmfile"
    structure, network = read_structure(path), FORMAT.read([path], {})
    compiled, random = compile_network(network, load_board("local")), np.random.default_rng(2)
    [output] = structure.nodes[structure.outputs[0]].outputs.tolist()
    steps = structure.tensors[output].quantisation
    for _ in range(20):
        data = random.integers(0, 256, (1, 3, 32, 32)) - np.reshape([104.007, 116.669, 122.679], (3, 1, 1))
        data = data.astype(np.float32)
        [found] = outputs_of(compiled, {"data": data})
        wanted = integers_of(structure, data)[output].astype(np.float32) * steps.scale
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("name", SAME)
def test_the_zoo_states_their_inputs_and_outputs(name: str, shared: Path) -> None:
    entry, graph = MODELS.load(name), converted(name, shared).graph
    [value] = graph.input
    assert value.name == entry.input.name
    assert [output.name for output in graph.output] == entry.outputs
    if FORMAT.open_input([file_of(name, shared)], {}) is None:
        [stated] = FORMAT.convert([file_of(name, shared)], {}).model.graph.input
        assert [size.dim_value for size in stated.type.tensor_type.shape.dim] == entry.input.shape


def test_the_landmarks_need_images_of_112_pixels(shared: Path) -> None:
    with pytest.raises(ModelError, match="FullyConnected 'conv6_3' cannot be imported: its weights"):
        FORMAT.convert([file_of("landmark-106-tengine", shared)], {"data": [1, 3, 144, 144]})


@pytest.mark.parametrize("name", SAME)
def test_a_file_cut_off_anywhere_is_not_complete(name: str, shared: Path, tmp_path: Path) -> None:
    content = file_of(name, shared).read_bytes()
    for size in np.random.default_rng(0).integers(12, len(content), 25).tolist():
        (tmp_path / "net.tmfile").write_bytes(content[:size])
        with pytest.raises(ModelError, match="is not complete"):
            FORMAT.convert([tmp_path / "net.tmfile"], {})


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("cases", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_tables_end_in_our_errors(name: str, cases: int, shared: Path, tmp_path: Path) -> None:
    content, given = file_of(name, shared).read_bytes(), MODELS.load(name).input
    random = np.random.default_rng(cases)
    tables = _tables(content)
    for case in range(cases):
        changed = bytearray(content)
        for place in random.choice(tables, 3).tolist():
            if case % 2:
                changed[place + int(random.integers(4))] ^= 1 << int(random.integers(8))
            else:
                number = random.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, *random.choice(tables, 3)])
                struct.pack_into("<I", changed, place, int(number))
        (tmp_path / "net.tmfile").write_bytes(changed)
        survive(lambda: FORMAT.convert([tmp_path / "net.tmfile"], {given.name: given.shape}), seconds=20)


def _tables(content: bytes) -> np.ndarray:
    """Where numbers are that are no weights: those that are small, or lead into the file."""
    numbers = np.frombuffer(content, "<u4", len(content) // 4)
    return np.flatnonzero(numbers < len(content)) * 4
