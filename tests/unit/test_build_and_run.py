"""`edgedeploy build` and `edgedeploy run` on this machine, as a user runs them."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import Command
from support.commands import json_of, notes_of, output_of, put, refused, refused_alone
from support.networks import Graph, tiny

from edgedeploy.errors import InputError, PackageError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.archive import (
    WORK_NAME,
    FunctionWork,
    describe,
    read_manifest,
    read_package,
    read_work,
    write_package,
)
from edgedeploy.runtime.profile import RUNTIME, profiled
from edgedeploy.runtime.session import check_tensors
from edgedeploy.target.board import load_board
from edgedeploy.target.hosts import host_features, missing_features
from edgedeploy.zoo.source import package_model

pytestmark = pytest.mark.compiles

DIGITS = "digits"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return tiny(tmp_path / "net.onnx")


@pytest.fixture
def package(command: Command, net: Path) -> Path:
    output_of(command, "build", net)
    return Path("dist/local/net.tar.gz")


def test_builds_a_package_that_was_checked_against_onnxruntime(command: Command) -> None:
    assert "equal to onnxruntime" in output_of(command, "build", DIGITS)
    manifest, contents = read_package(Path("dist/local/digits.tar.gz"))
    assert manifest.model == "digits"
    assert manifest.threads >= 1
    cases = ("", "-edge")
    tensors = {f"selftest/{tensor}-0{case}.bin" for tensor in ("input", "output") for case in cases}
    assert set(contents) == {"model.so", "functions.json", *tensors}


@pytest.mark.cold_cache
def test_building_twice_gives_the_same_bytes(command: Command, net: Path) -> None:
    for folder in ("first", "second"):
        assert command("build", net, "--force", "-o", folder)[0] == 0
    assert Path("first/net.tar.gz").read_bytes() == Path("second/net.tar.gz").read_bytes()


@pytest.mark.cold_cache
def test_progress_names_the_stages(command: Command, net: Path) -> None:
    _, _, err = command("build", net)
    for stage in ("import", "optimise", "schedule", "generate code", "link", "reference", "check"):
        assert stage in err


@pytest.mark.cold_cache
def test_prints_what_was_built_for_scripts(command: Command, net: Path) -> None:
    [built] = json_of(command, "build", net)
    assert built["model"] == "net"
    assert built["package"] == "dist/local/net.tar.gz"
    assert built["checked"] == "here"
    assert 0 <= built["error_of_tolerance"] <= 1


def test_dumps_intermediate_code_beside_the_package(command: Command, net: Path) -> None:
    assert command("build", net, "--dump", "ir,ll,asm")[0] == 0
    assert "conv2d" in Path("dist/local/net.ir.py").read_text()
    assert "define" in Path("dist/local/net.ll").read_text()
    assert ".text" in Path("dist/local/net.s").read_text()


def test_a_free_shape_is_given_on_the_command_line(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "free.onnx", graph.conv(graph.input("data", [1, 3, "h", "w"]), 3, 8, 3))
    assert "--input-shape data:1,3,224,224" in refused(command, 7, "build", path)
    assert command("build", path, "--input-shape", "data:1,3,10,12")[0] == 0
    assert read_manifest(Path("dist/local/free.tar.gz")).outputs[0].shape == [1, 8, 8, 10]


def unsupported(tmp_path: Path) -> Path:
    graph = Graph()
    return graph.save(tmp_path / "net.onnx", graph.node("NoSuchOperator", graph.input("data", [1, 4])))


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (unsupported, 5, "NoSuchOperator"),
        (lambda folder: put(path := tiny(folder / "net.onnx"), path.read_bytes()[:500]), 5, "not a complete ONNX file"),
        (lambda folder: put(folder / "net.onnx", b"MZ" + bytes(100)), 5, "is not a network of a known format"),
        (lambda folder: folder / "absent.onnx", 5, "there is no file"),
        (lambda folder: folder / "absent", 5, "there is no file"),
        (lambda folder: folder, 5, "it is a folder"),
        (lambda folder: put(folder / "net.tar.gz", gzip.compress(b"manifest")), 5, "is a package, not a network"),
        (lambda folder: "retinafce", 4, "retinaface"),
        (lambda folder: "no-network-at-all", 4, "unknown model 'no-network-at-all'\n"),
    ],
    ids=[
        *("unsupported operator", "truncated", "no format", "absent", "absent, without suffix", "a folder"),
        *("a package", "misspelt", "unknown"),
    ],
)
def test_a_failed_build_leaves_nothing(command: Command, tmp_path: Path, make: object, code: int, message: str) -> None:
    err = refused(command, code, "build", make(tmp_path))
    assert message in err
    assert "Traceback" not in err
    assert not [path for path in Path("dist").rglob("*") if path.is_file()]


def test_an_unwritable_folder_is_refused_before_the_work(command: Command, net: Path) -> None:
    Path("file").write_text("")
    err = refused(command, 10, "build", net, "-o", "file/inside")
    assert "cannot write" in err
    assert "optimise" not in err


def test_wrong_numbers_are_never_packaged(command: Command, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(net)
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    session = cpu_session(model.SerializeToString())
    for program in ("_reference", "_by_definition"):
        monkeypatch.setattr(
            f"edgedeploy.frontends.onnx.network.{program}",
            lambda *_, **__: lambda tensors: {"globalaveragepool2": session.run(None, dict(tensors))[0]},
        )
    assert "gives other outputs than onnxruntime" in refused(command, 6, "build", net)
    assert not Path("dist/local/net.tar.gz").exists()


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("build", ["--dump", "elf"], "elf"),
        ("build", ["--input-shape", "data"], "data"),
        ("build", ["--input-shape", "data:1,x"], "data:1"),
        ("run", ["--threads", "4096"], "processors"),
        ("run", ["-i", "empty"], ""),
        ("run", ["-i", "text"], ""),
        ("run", ["-i", "half"], ""),
        ("run", ["-i", "one.npy"], "without a name"),
    ],
)
def test_bad_options_are_explained(command: Command, net: Path, name: str, option: list[str], message: str) -> None:
    for file, content in {"empty": b"", "text": b"text", "half": b"PK\3\4 half a zip"}.items():
        Path(file).write_bytes(content)
    np.save("one.npy", np.zeros(3))
    assert message in refused(command, 7, name, net, *option)


def test_run_gives_the_networks_outputs_under_their_own_names(command: Command, net: Path) -> None:
    image = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    np.savez("in.npz", data=image)
    output_of(command, "run", net, "--inputs", "in.npz", "--outputs", "out.npz")
    [expected] = cpu_session(net).run(None, {"data": image})
    with np.load("out.npz") as written:
        assert written.files == ["globalaveragepool2"]
        np.testing.assert_allclose(written["globalaveragepool2"], expected, rtol=1e-4)


def test_run_takes_a_package(command: Command, package: Path) -> None:
    out = output_of(command, "run", package, "--print-top", "2")
    assert "net on local" in out
    assert out.count("\n  ") >= 4


def test_outputs_that_are_no_numbers_are_null_in_json(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Sqrt", graph.input("x", [2])))
    np.savez("in.npz", x=np.array([-1, 4], np.float32))
    out = output_of(command, "run", path, "--inputs", "in.npz", "--print-top", "2", "--json")
    [top] = json.loads(out, parse_constant=pytest.fail)["top"].values()
    assert [each["value"] for each in top] == [2, None]


@pytest.mark.cold_cache
def test_what_was_built_once_is_not_built_again(command: Command, net: Path) -> None:
    assert "building net" in command("run", net)[2]
    assert "building net" not in command("run", net)[2]
    net.write_bytes(tiny(net).read_bytes() + b"")
    other = onnx.load(net)
    other.producer_name = "another"
    onnx.save(other, net)
    assert "building net" in command("run", net)[2]


def test_run_measures_and_prints_json(command: Command, net: Path) -> None:
    printed = json_of(command, "run", net, "--repeat", "3", "--number", "2", "--threads", "1")
    assert (printed["model"], printed["board"], printed["threads"]) == (str(net), "local", 1)
    assert 0 < printed["min_ms"] <= printed["median_ms"] <= printed["max_ms"]
    assert printed["min_ms"] <= printed["mean_ms"] <= printed["max_ms"]
    assert printed["std_ms"] >= 0
    assert printed["outputs"] == [{"name": "globalaveragepool2", "dtype": "float32", "shape": [1, 8, 1, 1]}]


@pytest.mark.parametrize(("mode", "total"), [("zeros", 0.0), ("ones", 6.0)])
def test_inputs_that_no_file_gives_are_filled(command: Command, tmp_path: Path, mode: str, total: float) -> None:
    graph = Graph()
    first, second = graph.input("first", [3]), graph.input("second", [3])
    path = graph.save(tmp_path / "sum.onnx", graph.node("ReduceSum", graph.node("Add", first, second), keepdims=0))
    assert command("run", path, "--fill-mode", mode, "-o", "out.npz")[0] == 0
    with np.load("out.npz") as written:
        assert written["reducesum1"] == total


def test_no_folder_is_made_for_outputs(command: Command, net: Path) -> None:
    for arguments in (
        ("run", net, "-o", "new/out.npz"),
        ("toolchains", "cmake", "local", "-o", "new/local.cmake"),
        ("models", "show", net, "--graph", "new/net.svg"),
    ):
        assert "new is not a folder" in refused_alone(command, 10, *arguments)
        assert not Path("new").exists()


def test_random_inputs_are_the_same_each_time(command: Command, net: Path) -> None:
    values = []
    for name in ("a.npz", "b.npz"):
        command("run", net, "-o", name)
        with np.load(name) as written:
            values.append(written["globalaveragepool2"].tolist())
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"date": np.zeros((1, 3, 8, 8), np.float32)}, "unknown input 'date'"),
        ({}, "missing input 'data'"),
        ({"data": np.zeros((1, 3, 9, 8), np.float32)}, "shape 1x3x9x8"),
        ({"data": np.zeros((1, 3, 8, 8), np.complex64)}, "dtype complex64"),
        ({"data": np.array([None])}, "not a .npz file of plain arrays"),
    ],
    ids=["unknown", "missing", "shape", "dtype", "objects"],
)
def test_inputs_that_do_not_fit_are_refused(command: Command, net: Path, arrays: dict, message: str) -> None:
    np.savez("in.npz", **arrays)
    assert message in refused(command, 7, "run", net, "-i", "in.npz", "-o", "out.npz")
    assert not Path("out.npz").exists()


def test_inputs_of_wider_floats_are_converted(command: Command, net: Path) -> None:
    np.savez("in.npz", data=np.zeros((1, 3, 8, 8), np.float64))
    assert command("run", net, "-i", "in.npz")[0] == 0


def test_a_damaged_package_is_refused(command: Command, package: Path) -> None:
    package.write_bytes(package.read_bytes()[:-100])
    assert command("run", package)[0] == 8


def test_a_board_that_is_not_there_is_no_place_to_run(command: Command, net: Path) -> None:
    err = refused(command, 13, "run", net, "--board", "rpi4", "--host", "pi@127.0.0.1:1")
    assert "pi@127.0.0.1:1 cannot be reached" in err
    assert "--virtual" in err


def test_a_traceback_appears_only_when_asked_for(
    command: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("edgedeploy.api.packages.find_source", fail)
    err = refused(command, 70, "build", DIGITS)
    assert "internal error: RuntimeError: a fault of ours" in err
    assert "Traceback" not in err
    assert not caplog.records
    assert command("-vv", "build", DIGITS)[0] == 70
    assert [each for each in caplog.records if each.exc_info]


def test_explain_lists_every_function_with_its_template(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    depthwise = graph.conv(graph.conv(graph.input("data", [1, 3, 20, 20]), 3, 32, 3), 32, 32, 3, group=32)
    path = graph.save(tmp_path / "net.onnx", graph.node("MaxPool", depthwise, kernel_shape=[2, 2]))
    [built] = json_of(command, "build", path, "--explain")
    functions = {record["template"]: record for record in built["functions"]}
    assert set(functions) >= {"convolution", "depthwise convolution", "general"}
    # 18 x 18 pixels, 32 channels, 3 x 3 x 3 multiply-adds of two operations each.
    assert functions["convolution"]["mflop"] == pytest.approx(18 * 18 * 32 * 27 * 2 / 1e6, abs=1e-3)
    channels = 2 * load_board("local").vector.bits // 32
    assert f"pixels x {channels} channels, multiply-add of floats, " in functions["convolution"]["tile"]
    # Only the output is turned back to NCHW.
    assert built["transposes"] == {"edges": 1, "inside": 0}


def test_a_board_may_be_a_file(command: Command, net: Path) -> None:
    assert command("boards", "new", "my.yaml", "--from", "local")[0] == 0
    output_of(command, "build", net, "--board", "my.yaml")
    assert Path("dist/my/net.tar.gz").is_file()
    assert "building" not in notes_of(command, "run", net, "--board", "my.yaml")


def test_two_networks_of_one_name_do_not_replace_each_other(command: Command, net: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tiny(tmp_path / "other" / "net.onnx")
    code, out, err = command("build", net, other, "--json")
    assert code == 7
    assert f"{net} and {other}" in err
    assert [each["state"] for each in json.loads(out)] == ["built", "failed"]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("squeezenet_v1.1", "squeezenet_v1.1"),
        ("Mein Netz (1)", "Mein-Netz-1"),
        ("réseau", "reseau"),
        ("网络", "network"),
        ("-rf", "rf"),
        ("../..", "network"),
        ("_x" * 80, "x_" * 50),
    ],
)
def test_a_network_of_any_name_has_one_that_boards_take(name: str, model: str) -> None:
    assert package_model(name) == model


def test_a_file_of_any_name_becomes_a_sound_package(command: Command, tmp_path: Path) -> None:
    path = tiny(tmp_path / "plain.onnx").rename(tmp_path / "mein größtes Netz.onnx")
    assert command("build", path)[0] == 0
    assert command("package", "verify", "dist/local/mein-grotes-Netz.tar.gz")[0] == 0


@pytest.mark.cold_cache
def test_a_network_is_built_again_when_its_weights_outside_change(command: Command, tmp_path: Path) -> None:
    model = onnx.load(tiny(tmp_path / "net.onnx"))
    path = tmp_path / "outside.onnx"
    onnx.save(model, path, save_as_external_data=True, location="outside.data", size_threshold=0)
    assert "building" in command("run", path)[2]
    assert "building" not in command("run", path)[2]
    (np.fromfile(tmp_path / "outside.data", np.float32) * 2).tofile(tmp_path / "outside.data")
    assert "building" in command("run", path)[2]


@pytest.mark.cold_cache
def test_a_network_is_built_again_when_the_toolchain_changes(command: Command, net: Path) -> None:
    Path("toolchains").mkdir()
    toolchain = Path("toolchains/native.yaml")
    toolchain.write_text("description: x\nlinkers: [[cc], [python, -m, ziglang, cc]]\ninstall: x\n")
    assert "building" in command("run", net)[2]
    toolchain.write_text(toolchain.read_text() + "options: [-O1]\n")
    assert "building" in command("run", net)[2]


def test_a_linker_that_writes_nothing_is_a_toolchain_error(command: Command, net: Path) -> None:
    put(Path("toolchains/idle.yaml"), "description: x\nlinkers: [['true']]\ninstall: x\n")
    assert "generated nothing" in refused(command, 11, "build", net, "--toolchain", "idle")


def test_networks_of_doubles_run(command: Command, tmp_path: Path) -> None:
    graph, random = Graph(), np.random.default_rng(0)
    scales = [graph.weight(np.abs(random.standard_normal(4))) for _ in range(4)]
    other = graph.weight(random.standard_normal((1, 4, 8, 8)))
    total = graph.node("Add", graph.input("data", [1, 4, 8, 8], onnx.TensorProto.DOUBLE), other)
    path = graph.save(tmp_path / "doubles.onnx", graph.node("BatchNormalization", total, *scales))
    output_of(command, "run", path, "--json")


@pytest.mark.parametrize(
    ("needs", "message"),
    [({"glibc": "9.99"}, "glibc 9.99"), ({"cpu": "sapphirerapids-next"}, ""), ({"machine": "EM_68K"}, "EM_68K")],
    ids=["a newer glibc", "a processor nothing is known about", "another architecture"],
)
def test_a_foreign_package_is_refused(command: Command, package: Path, needs: dict[str, str], message: str) -> None:
    manifest, contents = read_package(package)
    write_package(package, manifest.model_copy(update={"abi": manifest.abi.model_copy(update=needs)}), contents)
    assert message in refused(command, 8 if message else 0, "run", package)


def test_a_processor_lacks_what_its_flags_do_not_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.target.hosts._cpuinfo", lambda: {"flags": "fpu sse2 avx2 avx512vl"})
    assert missing_features("cascadelake", host_features()) == {"avx512_vnni"}
    assert missing_features("no-such-cpu", host_features()) == set()


def test_a_working_folder_that_is_gone_is_an_empty_one(command: Command, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert command("boards")[0] == 0


def test_integers_are_converted_only_if_they_fit() -> None:
    spec = TensorSpec(name="data", shape=[2], dtype="int8")
    assert check_tensors({"data": np.array([0, 127], np.int64)}, [spec])[0].tolist() == [0, 127]
    for value in (300, -129):
        with pytest.raises(InputError, match="do not fit int8"):
            check_tensors({"data": np.array([0, value], np.int64)}, [spec])


# `run --profile`: the time of each function, beside what it does.

# A convolution of 3x3 from 3 to 8 channels on 8x8 pixels, with bias and ReLU.
PRODUCTS = 8 * 8 * 8 * 3 * 3 * 3
BYTES = 4 * (3 * 8 * 8 + 8 * 3 * 3 * 3 + 8 + 8 * 8 * 8)


def work(function: str, kind: str = "float32", operations: int = 0, size: int = 0) -> FunctionWork:
    return FunctionWork(function=function, calls=1, template="x", type=kind, operations=operations, bytes=size)


def test_each_function_is_printed_with_its_share_of_the_time_and_what_it_does(command: Command, package: Path) -> None:
    functions = json_of(command, "run", package, "--profile", "--repeat", "3")["functions"]
    assert sum(each["share"] for each in functions) == pytest.approx(1)
    assert [each["ms"] for each in functions] == sorted((each["ms"] for each in functions), reverse=True)
    [layer] = [each for each in functions if each.get("operations", 0) >= 2 * PRODUCTS]
    assert (layer["calls"], layer["type"]) == (1, "float32")
    assert layer["operations"] <= 2 * PRODUCTS + 2 * 8 * 8 * 8  # bias and ReLU
    assert BYTES <= layer["bytes"] <= 2 * BYTES  # weights are packed for whole vectors
    assert layer["gflops"] == pytest.approx(layer["operations"] / layer["ms"] / 1e6)
    assert layer["gigabytes_per_second"] == pytest.approx(layer["bytes"] / layer["ms"] / 1e6)
    assert RUNTIME in {each["function"] for each in functions}
    assert not any(each["function"].endswith("_scheduled") for each in functions)
    table = command("run", package, "--profile")[1]
    assert layer["function"] in table
    assert "GFLOP/s" in table


def test_the_share_of_the_peak_is_that_of_all_cores_at_the_clock_of_the_profile() -> None:
    board = load_board("rpi4")  # 4 products of floats in a cycle, at 1800 MHz
    core = board.core_model
    times = {"conv_scheduled": [9.0, 1.0, 1.5], "int_scheduled": [1.0], "vm.builtin.alloc_tensor": [0.25, 0.75]}
    operations = 2 * 4 * 1_800_000  # what one core does in a millisecond
    integers = round(2 * core.byte_products * core.clock_mhz * 1000)
    done = [work("conv_scheduled", operations=operations, size=3_000_000), work("int_scheduled", "int8", integers)]
    first, second, runtime = profiled(times, done, board, threads=2)
    assert (first.function, first.ms, first.of_peak) == ("conv", 1.5, pytest.approx(1 / 3))
    assert (first.gflops, first.gigabytes) == (pytest.approx(9.6), pytest.approx(2.0))
    assert second.of_peak == pytest.approx(1 / 2)
    assert (runtime.function, runtime.ms, runtime.work) == (RUNTIME, 0.5, None)
    assert runtime.as_dict() == {"function": RUNTIME, "ms": 0.5, "share": pytest.approx(0.5 / 3)}
    assert profiled(times, done, load_board("local"), threads=2)[0].of_peak is None


def test_packages_of_earlier_versions_have_times_alone(command: Command, package: Path, tmp_path: Path) -> None:
    manifest, contents = read_package(package)
    del contents[WORK_NAME]
    earlier = tmp_path / "earlier.tar.gz"
    write_package(earlier, manifest.model_copy(update={"files": describe(contents)}), contents)
    assert read_work(earlier) == []
    functions = json_of(command, "run", earlier, "--profile")["functions"]
    assert all(each.keys() == {"function", "ms", "share"} for each in functions)


@pytest.mark.parametrize("content", [b"{", b"[1]", b'[{"function": "f", "calls": -1}]', b"[" * 100_000])
def test_a_damaged_list_of_functions_is_said(package: Path, tmp_path: Path, content: bytes) -> None:
    manifest, contents = read_package(package)
    contents[WORK_NAME] = content
    write_package(tmp_path / "bad.tar.gz", manifest.model_copy(update={"files": describe(contents)}), contents)
    with pytest.raises(PackageError, match=WORK_NAME):
        read_work(tmp_path / "bad.tar.gz")
