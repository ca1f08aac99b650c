"""TensorFlow Lite files: recognised, imported in NCHW, equal to LiteRT; what is damaged is refused."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from support.agreement import assert_matches_reference, random_inputs
from support.fuzzing import damaged, peak_of, survive
from support.running import outputs_of
from support.tflite_networks import lstm, small
from tvm import relax
from unit.test_unified import module_of

from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import InputError, ModelError, NotInstalledError
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.tflite import FORMAT
from edgedeploy.frontends.tflite.importer import in_nchw
from edgedeploy.model.network import Network
from edgedeploy.target.board import load_board


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def imported(folder: Path, content: bytes) -> Network:
    return FORMAT.read([written(folder / "net.tflite", content)], {})


def network_file(folder: Path, **options: object) -> Path:
    return written(folder / "net.tflite", small(**options))  # type: ignore[arg-type]


def test_files_are_recognised_by_their_identifier(tmp_path: Path) -> None:
    assert describing(written(tmp_path / "net", b"\x1c\0\0\0TFL3" + bytes(40)))[0] is FORMAT


def test_litert_prints_nothing_between_the_lines_of_a_build(tmp_path: Path) -> None:
    """It would tell once in each process that it takes its usual kernels."""
    ask = "import sys; from pathlib import Path; from edgedeploy.frontends.tflite.reference import _interpreter as of\n"
    ask += "of(Path(sys.argv[1]).read_bytes(), delegates=True)"
    command = [sys.executable, "-c", ask, network_file(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.stdout, done.stderr) == (b"", b"")


def absent(package: str) -> str:
    raise metadata.PackageNotFoundError(package)


def test_without_its_packages_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(NotInstalledError, match="package tflite is needed") as raised:
        imported(tmp_path, b"\x1c\0\0\0TFL3")
    assert raised.value.hints == ("pip install 'edgedeploy[build]'",)


@pytest.mark.compiles
def test_a_network_gives_litert_s_values_under_its_own_names_without_a_transpose(tmp_path: Path) -> None:
    network = FORMAT.read([network_file(tmp_path)], {})
    assert [(spec.name, spec.shape) for spec in network.inputs] == [("image", [1, 8, 8, 3])]
    assert [(spec.name, spec.shape) for spec in network.outputs] == [("scores", [1, 1, 1, 8])]
    compiled = compile_network(network, load_board("local"))
    assert transposes(compiled) == {"edges": 0, "inside": 0}
    inputs = {"image": np.random.default_rng(1).standard_normal((1, 8, 8, 3)).astype(np.float32)}
    (found,), (wanted,) = outputs_of(compiled, inputs), network.reference(inputs).values()
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert network.reference_name.startswith("LiteRT ")
    [others] = network.other_kernels(inputs).values()
    assert 0 < np.abs(others - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_resize_of_nhwc_images_becomes_one_of_planes() -> None:
    def resized(builder: relax.BlockBuilder, image: relax.Expr) -> relax.Expr:
        return relax.op.image.resize2d(image, (8, 12), layout="NHWC", method="linear")

    script = in_nchw(module_of(resized, (1, 4, 6, 3))).script()
    assert 'layout="NCHW"' in script
    assert "R.Tensor((1, 8, 12, 3)" in script


def test_what_lies_between_convolutions_of_nhwc_images_needs_no_transpose() -> None:
    random = np.random.default_rng(0)

    def constant(*shape: int) -> relax.Expr:
        return relax.const(random.standard_normal(shape).astype(np.float32))

    def convolved(builder: relax.BlockBuilder, data: relax.Expr, channels: int) -> relax.Expr:
        weights = constant(3, 3, int(data.ty.shape[3]), channels)
        made = relax.op.nn.conv2d(data, weights, padding=1, data_layout="NHWC", kernel_layout="HWIO")
        return builder.emit(relax.op.add(builder.emit(made), constant(channels)))

    def between(builder: relax.BlockBuilder, image: relax.Expr) -> relax.Expr:
        data = builder.emit(relax.op.clip(convolved(builder, image, 16), 0, 6))
        data = builder.emit(relax.op.nn.pad(data, [0, 0, 1, 2, 3, 0, 0, 0]))
        data = builder.emit(relax.op.nn.prelu(data, constant(16), axis=3))
        data = builder.emit(relax.op.nn.max_pool2d(data, [2, 2], [2, 2], layout="NHWC"))
        gate = builder.emit(relax.op.sigmoid(builder.emit(relax.op.mean(data, [1, 2], keepdims=True))))
        data = builder.emit(relax.op.concat([data, builder.emit(relax.op.multiply(data, gate))], 3))
        data = builder.emit(relax.op.nn.leakyrelu(convolved(builder, data, 8), 0.1))
        return relax.op.mean(data, [1, 2])

    module = in_nchw(module_of(between, (1, 8, 12, 3)))
    network = Network(Path("net"), module, [], [], False, lambda inputs: {}, "nothing")
    assert transposes(lower_network(network, load_board("local"))) == {"edges": 0, "inside": 0}


@pytest.mark.parametrize("rows", [0, -1, 2**31 - 1])
def test_impossible_shapes_are_refused(tmp_path: Path, rows: int) -> None:
    with pytest.raises(ModelError, match="'image' has an impossible shape"):
        FORMAT.read([network_file(tmp_path, rows=rows)], {})


def test_shapes_are_those_of_the_file(tmp_path: Path) -> None:
    path = network_file(tmp_path)
    assert FORMAT.read([path], {"image": [1, 8, 8, 3]}).inputs[0].shape == [1, 8, 8, 3]
    with pytest.raises(InputError, match="cannot be changed"):
        FORMAT.read([path], {"image": [1, 16, 16, 3]})
    with pytest.raises(InputError, match="its inputs: image"):
        FORMAT.read([path], {"photo": [1, 8, 8, 3]})


@pytest.mark.usefixtures("limited_memory")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_end_in_errors_of_ours(tmp_path: Path, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    whole = network_file(tmp_path).read_bytes()
    random = np.random.default_rng(count)
    for _ in range(count):
        path = written(tmp_path / "damaged.tflite", damaged(whole, random))
        survive(lambda path=path: FORMAT.read([path], {}))
    assert "BlockBuilder" not in capfd.readouterr().err


def test_damaged_files_take_no_memory(tmp_path: Path) -> None:
    whole = network_file(tmp_path).read_bytes()
    random = np.random.default_rng(5)
    FORMAT.read([network_file(tmp_path)], {})  # which imports TVM's frontend
    for _ in range(40):
        path = written(tmp_path / "damaged.tflite", damaged(whole, random))
        assert peak_of(lambda path=path: FORMAT.read([path], {})) < 8 << 20


# LSTMs over sequences.


@pytest.mark.compiles
@pytest.mark.parametrize(
    "settings",
    [
        {},
        # Of several sequences that begin with the batch, LiteRT 2.3 gives other values in each run.
        {"both": True, "batch": 1},
        pytest.param({"both": True, "merged": False, "time_major": True}, marks=pytest.mark.slow),
        {"coupled": True, "peepholes": True},
        pytest.param({"coupled": True}, marks=pytest.mark.slow),
        pytest.param({"peepholes": True, "cell_clip": 0.3}, marks=pytest.mark.slow),
    ],
    ids=lambda settings: " ".join(settings) or "plain",
)
def test_an_lstm_gives_litert_values(settings: dict[str, Any], tmp_path: Path) -> None:
    network = imported(tmp_path, lstm(**settings))
    assert_matches_reference(network, random_inputs(network, seed=0), atol=1e-6)


def test_an_lstm_that_projects_its_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="an LSTM projects its state"):
        imported(tmp_path, lstm(projected=True))
