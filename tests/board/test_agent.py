"""The agent on this machine, and on emulated boards: what docs/agent.md promises."""

import io
import json
import math
import os
import platform
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from support.agents import answer, assert_needs_little, call, command_of, messages, packaged, request, unpack, unpacked
from support.commands import generous, printed, started
from support.networks import Graph, tiny

from edgedeploy.building import build
from edgedeploy.compile.output import packing
from edgedeploy.package.entry import Case
from edgedeploy.runtime.session import Session
from edgedeploy.selftest.tolerance import fractions
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

Json = dict[str, Any]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packaged(tiny(tmp_path_factory.mktemp("archive") / "net.onnx")).path


@pytest.fixture
def package(archive: Path, tmp_path: Path) -> Path:
    return unpack(archive, tmp_path / "package")


@contextmanager
def manifest_of(package: Path) -> Iterator[Any]:
    path = package / "manifest.json"
    content = json.loads(path.read_text())
    yield content
    path.write_text(json.dumps(content))


def refused(agent: Path, *arguments: object, code: int, stdin: bytes = b"") -> str:
    done = call(agent, *arguments, stdin=stdin)
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert message.startswith("agent: ")
    assert len(message.splitlines()) == 1
    return message


def test_each_command_says_how_it_is_called(agent: Path) -> None:
    for command in ("run", "selftest", "verify", "facts", "demo", "serve", "service", "rpc"):
        for words in ([command, "--help"], [command, "x", "--help"]):
            done = call(agent, *words)
            assert (done.returncode, done.stderr) == (0, b"")
            assert done.stdout.startswith(f"usage: agent {command} ".encode())
        assert f" agent {command} ".encode() in call(agent, "--help").stdout


def test_it_is_small_and_needs_only_an_old_glibc(agent: Path) -> None:
    assert_needs_little(agent, "local", most_bytes=5_000_000)


def test_outputs_are_those_of_the_package_in_process(agent: Path, archive: Path, package: Path, tmp_path: Path) -> None:
    data = np.random.default_rng(3).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (tmp_path / "in.bin").write_bytes(data.tobytes())
    result = answer(agent, "run", package, "--input", f"data={tmp_path / 'in.bin'}", "--output-dir", tmp_path / "out")
    [output] = result["outputs"]
    found = np.fromfile(output["file"], output["dtype"]).reshape(output["shape"])
    [wanted] = Session.open(archive).run({"data": data}).values()
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max(), rtol=0)


def test_run_reports_times_and_memory(agent: Path, package: Path) -> None:
    result = answer(agent, "run", package, "--fill", "ones", "--repeat", 4, "--number", 3, "--threads", 1)
    assert len(result["runs_ms"]) == 4
    assert result["min_ms"] == min(result["runs_ms"])
    assert 0 < result["load_ms"] < result["start_ms"]
    assert 0 < result["memory"]["anonymous_bytes"] <= result["memory"]["resident_bytes"]
    assert "min_ms" not in answer(agent, "run", package, "--fill", "zeros", "--repeat", 0)


def test_a_network_of_17_mb_starts_in_150_ms(agent: Path, shared: Path, tmp_path: Path) -> None:
    network = find_source(str(shared / "models" / "mobilenet_v1" / "mobilenet_v1_1.0_224_float.onnx"))
    built = build(network, resolve("local"), tmp_path / "net.tar.gz")
    package = unpack(built.path, tmp_path / "package")
    result, *_ = results = [answer(agent, "run", package, "--fill", "ones", "--warmup", 0)]
    while min(result["start_ms"] for result in results) > 150:  # others use the processors, too
        assert len(results) < 50
        results.append(answer(agent, "run", package, "--fill", "ones", "--warmup", 0))
    # What is planned when it is built is what it takes, beside the runtime, the library's code and a few pages.
    planned = built.manifest.memory
    anonymous = result["memory"]["anonymous_bytes"]
    assert planned.workspace_bytes < anonymous < planned.workspace_bytes + planned.constants_bytes + (16 << 20)


@pytest.mark.parametrize("value", [1e6, float("nan"), float("inf")])
def test_other_outputs_than_the_recorded_fail_the_self_test(agent: Path, package: Path, value: float) -> None:
    recorded = package / "selftest" / "output-0.bin"
    values = np.fromfile(recorded, np.float32)
    values[0] = value
    recorded.write_bytes(values.tobytes())
    done = call(agent, "selftest", package)
    assert done.returncode == 6
    assert not json.loads(done.stdout)["passed"]


def test_a_sound_package_is_verified(agent: Path, package: Path) -> None:
    assert answer(agent, "verify", package)["files"] == 2 + 2 * 2  # the library, what its functions do, and two cases


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"shape": [8]}, "it is 1x8x1x1 of float32, not 8 of float32"),
        ({"shape": []}, "not a scalar of float32"),
        ({"shape": [1, 8, 1, 1], "dtype": "int32"}, "not 1x8x1x1 of int32"),
    ],
)
def test_an_output_of_another_shape_or_dtype_is_refused(agent: Path, package: Path, changed: Json, named: str) -> None:
    with manifest_of(package) as manifest:
        manifest["outputs"][0] |= changed
        for case in manifest["selftest"]["cases"]:  # what is recorded is of that size
            [name] = case["outputs"]
            manifest["files"][name]["size"] = 4 * math.prod(changed["shape"])
            os.truncate(package / name, 4 * math.prod(changed["shape"]))
    for command in (["selftest"], ["run", "--fill", "ones"]):
        assert named in refused(agent, *command, package, code=8)


@pytest.mark.parametrize("edit", [lambda shape: shape[1:], lambda shape: [1, *shape]], ids=["lower", "higher"])
def test_inputs_of_another_rank_than_the_networks_are_refused(
    agent: Path, package: Path, edit: Callable[[list[int]], list[int]]
) -> None:
    with manifest_of(package) as manifest:
        manifest["inputs"][0]["shape"] = edit(manifest["inputs"][0]["shape"])
    said = "the network takes other inputs than its manifest describes"
    for command in (["selftest"], ["run", "--fill", "ones"]):
        assert said in refused(agent, *command, package, code=8)


def test_a_wrong_number_of_outputs_is_refused(agent: Path, package: Path) -> None:
    with manifest_of(package) as manifest:
        manifest["outputs"] *= 2
        for case in manifest["selftest"]["cases"]:
            for field in ("outputs", "relative", "spread"):
                case[field] *= 2
    assert "there are 1, not 2" in refused(agent, "selftest", package, code=8)


def test_every_case_of_the_self_test_is_run(agent: Path, package: Path) -> None:
    result = answer(agent, "selftest", package)
    assert result["passed"]
    assert [output["case"] for output in result["outputs"]] == ["random", "edge"]
    assert all(output["fraction"] <= 1 for output in result["outputs"])
    recorded = package / "selftest" / "output-0-edge.bin"
    recorded.write_bytes((np.fromfile(recorded, np.float32) + 1).tobytes())
    done = call(agent, "selftest", package)
    assert done.returncode == 6
    fractions = {output["case"]: output["fraction"] for output in json.loads(done.stdout)["outputs"]}
    assert fractions["random"] <= 1 < fractions["edge"]


def test_outputs_that_rounding_changes_much_are_compared_by_root_mean_squares(agent: Path, package: Path) -> None:
    recorded = package / "selftest" / "output-0.bin"
    sound = np.fromfile(recorded, np.float32)
    wrong = sound.copy()
    wrong[0] += np.abs(sound).max()
    recorded.write_bytes(wrong.tobytes())
    with manifest_of(package) as manifest:
        case = manifest["selftest"]["cases"][0]
        case |= {"relative": [0.9], "rms": [manifest["outputs"][0]["name"]]}
    [output, *_] = answer(agent, "selftest", package)["outputs"]
    [expected] = fractions({"y": sound}, {"y": wrong}, Case.model_validate(case | {"rms": ["y"]})).values()
    assert output["fraction"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("changed", [50, 51])
def test_half_of_the_rows_that_a_network_chooses_may_be_others(agent: Path, tmp_path: Path, changed: int) -> None:
    """Of a network that goes on with the best 100 of 120 values."""
    graph = Graph(opset=17)
    values = graph.input("x", [1, 120, 6])
    scores = graph.node("ReduceMax", values, axes=[2], keepdims=0)
    best = graph.node("TopK", scores, graph.weight(np.array([100])), outputs=2)
    rows = graph.node("Gather", graph.reshape(values, 120, 6), f"{best}_1", axis=0)
    package = unpacked(graph.save(tmp_path / "net.onnx", graph.node("MatMul", rows, graph.normal(6, 6))))
    assert answer(agent, "selftest", package)["passed"]
    recorded = package / "selftest" / "output-0.bin"
    shuffled = np.random.default_rng(0).permutation(np.fromfile(recorded, np.float32).reshape(100, 6))
    shuffled[:changed] += 1
    recorded.write_bytes(shuffled.tobytes())
    assert call(agent, "selftest", package).returncode == (0 if changed == 50 else 6)


def test_infinities_agree_with_the_same_alone(agent: Path, tmp_path: Path) -> None:
    graph = Graph()
    logarithms = graph.node("Log", graph.node("Relu", graph.input("x", [6, 8])))
    package = unpacked(graph.save(tmp_path / "net.onnx", logarithms))
    recorded = package / "selftest" / "output-0-edge.bin"
    values = np.fromfile(recorded, np.float32)
    assert np.isneginf(values).any()
    assert answer(agent, "selftest", package)["passed"]
    recorded.write_bytes(np.where(np.isneginf(values), np.float32(np.inf), values).tobytes())
    assert call(agent, "selftest", package).returncode == 6


def test_scalars_stay_scalars(agent: Path, tmp_path: Path) -> None:
    graph = Graph()
    package = unpacked(graph.save(tmp_path / "net.onnx", graph.node("Exp", graph.input("x", []))))
    assert answer(agent, "selftest", package)["passed"]
    (tmp_path / "in.bin").write_bytes(np.float32(1).tobytes())
    result = answer(agent, "run", package, "--input", f"x={tmp_path / 'in.bin'}", "--output-dir", tmp_path / "out")
    [output] = result["outputs"]
    assert output["shape"] == []
    assert np.fromfile(output["file"], np.float32) == pytest.approx(np.e)


def link_elsewhere(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".copy"))
    path.unlink()
    path.symlink_to(path.with_suffix(".copy"))


def become_a_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    path.unlink()
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]), "SHA-256"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "should have"),
        (link_elsewhere, "link"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "plain file"),
        (become_a_device, "plain file"),
    ],
    ids=["missing", "changed", "longer", "link", "pipe", "device"],
)
def test_a_damaged_package_is_refused(agent: Path, package: Path, damage: Callable[[Path], object], named: str) -> None:
    damage(package / "model.so")
    assert named in refused(agent, "verify", package, code=8)


@pytest.mark.parametrize("name", ["/etc/passwd", "../model.so", "a/../model.so", "a/b/c", "./model.so", "", ".."])
def test_a_manifest_with_a_name_that_leads_out_is_refused(agent: Path, package: Path, name: str) -> None:
    with manifest_of(package) as manifest:
        manifest["files"][name] = manifest["files"]["model.so"]
    for command in ("verify", "selftest", "run", "serve"):
        assert "is not a file name" in refused(agent, command, package, code=8)


def test_a_folder_that_is_a_link_is_refused(agent: Path, package: Path) -> None:
    (package / "selftest").rename(package / "elsewhere")
    (package / "selftest").symlink_to("elsewhere")
    assert "cannot open selftest/" in refused(agent, "verify", package, code=8)


@pytest.mark.parametrize("name", ["manifest.json", "model.so", "selftest/input-0.bin"])
def test_a_file_of_a_terabyte_is_refused_unread(agent: Path, package: Path, name: str) -> None:
    os.truncate(package / name, 1 << 40)
    limited = ["prlimit", f"--as={1 << 30}", "--cpu=5", str(agent), "verify", str(package)]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 8, done.stderr
    assert "too large" in done.stderr or "should have" in done.stderr


def test_a_network_that_crashes_is_reported_with_the_signal_and_the_function(agent: Path, tmp_path: Path) -> None:
    trap = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}.get(platform.machine())
    if trap is None:
        pytest.skip(f"no instruction that traps is known for {platform.machine()}")
    graph = Graph()
    inner = graph.node("Exp", graph.input("data", [300, 300]))
    library = unpacked(graph.save(tmp_path / "net.onnx", graph.node("Softmax", inner, axis=1))) / "model.so"
    content = bytearray(library.read_bytes())
    elf = ELFFile(io.BytesIO(content))
    [entry] = [each for each in elf.get_section_by_name(".dynsym").iter_symbols() if "softmax" in each.name]
    # The entry calls what follows it, in one thread or in several.
    [begin] = elf.address_offsets((entry["st_value"] + entry["st_size"] + 15) // 16 * 16)
    content[begin : begin + len(trap)] = trap
    library.write_bytes(content)
    done = call(agent, "run", library.parent, "--fill", "ones")
    assert done.returncode == -signal.SIGTRAP
    assert done.stderr == b"agent: it was ended by SIGTRAP (in the network's function softmax)\n"


def test_a_package_for_another_machine_is_refused_with_both_machines(agent: Path, package: Path) -> None:
    other = "EM_ARM" if platform.machine() == "x86_64" else "EM_X86_64"
    with manifest_of(package) as manifest:
        manifest["abi"]["machine"] = other
    message = refused(agent, "selftest", package, code=8)
    assert other in message
    assert message.count("EM_") == 2


def test_wrong_command_lines_and_inputs_are_explained(agent: Path, package: Path, tmp_path: Path) -> None:
    (tmp_path / "short.bin").write_bytes(b"abc")
    assert "unknown command" in refused(agent, "fly", code=2)
    assert "--repeat" in refused(agent, "run", package, "--repeat", "many", code=2)
    assert "missing input" in refused(agent, "run", package, code=7)
    assert "the network's inputs: data" in refused(agent, "run", package, "--input", "x=y", code=7)
    assert "it has only 3" in refused(agent, "run", package, "--input", f"data={tmp_path / 'short.bin'}", code=7)
    assert "processors" in refused(agent, "run", package, "--fill", "ones", "--threads", 10_000, code=7)
    target = tmp_path / "short.bin" / "out"
    assert "cannot make" in refused(agent, "run", package, "--fill", "ones", "--output-dir", target, code=10)


def test_facts_are_those_that_python_finds(agent: Path) -> None:
    facts = answer(agent, "facts")
    assert (facts["machine"], facts["glibc"]) == (platform.machine(), platform.libc_ver()[1])
    assert (facts["elf"]["class"], facts["cores"]) == (64, len(os.sched_getaffinity(0)))
    assert facts["disk"]["total_bytes"] == shutil.disk_usage(".").total
    assert facts["agent"] == answer(agent, "--version")


def conversation(agent: Path, package: Path, stdin: bytes) -> tuple[int, bytes]:
    done = call(agent, "serve", package, stdin=stdin)
    return done.returncode, done.stdout


def test_serve_answers_until_its_input_ends(agent: Path, package: Path) -> None:
    data = (package / "selftest" / "input-0.bin").read_bytes()
    wanted = np.fromfile(package / "selftest" / "output-0.bin", np.float32)
    measure = request("measure", data, repeat=3) + request("measure-end-to-end", data, repeat=2)
    wrong = b'{"command": "run", "bytes": 3}\nabc{"command": "fly", "bytes": 1}\nx'
    code, out = conversation(agent, package, request("run", data, id=7) + wrong + measure + request("status"))
    assert code == 0
    (greeting, _), (answered, outputs), *others = messages(out)
    assert greeting["inputs"][0]["bytes"] == len(data)
    assert (answered["id"], answered["ok"]) == (7, True)
    found = np.frombuffer(outputs, np.float32)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max(), rtol=0)
    too_short, unknown, measured, whole, status = (said for said, _ in others)
    assert (too_short["code"], unknown["code"]) == (7, 7)
    assert len(measured["runs_ms"]) == 3
    assert (len(whole["runs_ms"]), "kernels_ms" in whole) == (2, False)
    assert status["requests"] == 6


@pytest.mark.parametrize(
    "stdin",
    [
        b'{"command": "run", "bytes": 768}\nabc',
        b'{"command"',
        b"garbage\n",
        b"[]\n",
        b'{"bytes": -1}\n',
        b'{"bytes": 1e3}\n',
        b"x" * 70_000,
    ],
)
def test_serve_ends_where_no_request_can_follow(agent: Path, package: Path, stdin: bytes) -> None:
    assert conversation(agent, package, stdin)[0] == 7


@pytest.mark.parametrize("said", [b'{"command": "ru', b'{"command": "run", "bytes": 768}\nabc'])
def test_serve_hears_sigterm_and_the_end_of_its_input_within_a_message(agent: Path, package: Path, said: bytes) -> None:
    for end, code in ((subprocess.Popen.terminate, -signal.SIGTERM), (lambda process: process.stdin.close(), 7)):
        with serving(agent, package, said) as process:
            assert process.poll() is None
            end(process)
            assert process.wait(generous(5)) == code


def test_serve_ends_while_it_measures_when_nobody_reads_its_replies(agent: Path, package: Path) -> None:
    data = (package / "selftest" / "input-0.bin").read_bytes()
    with serving(agent, package, request("measure", data, repeat=1_000_000, number=1_000_000)) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.stdout.close()
        assert process.wait(generous(5)) == 10


@contextmanager
def serving(agent: Path, package: Path, said: bytes) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with started(agent, "serve", package, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline()
        process.stdin.write(said)
        process.stdin.flush()
        yield process


def test_serve_ends_on_request(agent: Path, package: Path) -> None:
    code, out = conversation(agent, package, b'{"command": "quit"}\n{"command": "status"}\n')
    assert (code, len(out.splitlines())) == (0, 2)


def layers(path: Path) -> Path:
    """A network whose weights the agent transforms when it loads the package."""
    graph = Graph()
    first = graph.conv(graph.input("data", [1, 32, 24, 24]), 32, 64, 3, pads=[1] * 4)
    return graph.save(path, graph.conv(graph.node("Relu", first), 64, 64, 3, pads=[1] * 4))


@pytest.fixture(scope="module")
def transforming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = packaged(layers(tmp_path_factory.mktemp("transforming") / "net.onnx"))
    assert len(built.manifest.transformed) == 2
    return built.path


@pytest.mark.quick("local", "rpi4")  # agents of others are built for it alone
@pytest.mark.parametrize("board", ["local", "rpi4", "rpi-armhf", "visionfive2"])
def test_outputs_match_build_time_weights(tmp_path: Path, board: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *options = command_of(board)
    (tmp_path / "in.bin").write_bytes(np.random.default_rng(3).standard_normal(32 * 24 * 24).astype("<f4").tobytes())
    outputs = []
    for when, least in (("loaded", packing.LEAST_GROWTH), ("built", 1 << 30)):
        monkeypatch.setattr(packing, "LEAST_GROWTH", least)
        (tmp_path / when).mkdir()
        built = packaged(layers(tmp_path / when / "net.onnx"), board)
        assert bool(built.manifest.transformed) == (when == "loaded")
        folder = unpack(built.path, tmp_path / when / "package")
        given = ["run", folder, "--input", f"data={tmp_path / 'in.bin'}", "--output-dir", tmp_path / when / "out"]
        [output] = answer(Path(program), *options, *given)["outputs"]
        outputs.append(Path(output["file"]).read_bytes())
    assert outputs[0] == outputs[1]


def test_transformed_weights_are_served_measured_and_profiled(agent: Path, transforming: Path, tmp_path: Path) -> None:
    data = np.ones((1, 32, 24, 24), np.float32).tobytes()
    requests = request("measure", data) + request("profile", data) + request("quit")
    code, out = conversation(agent, unpack(transforming, tmp_path / "package"), requests)
    assert code == 0
    ready, measured, profiled, _ = map(json.loads, out.splitlines())
    assert ready["load_ms"] > 0
    assert measured["ok"]
    assert profiled["functions"]
    assert not any("transform" in name for name in profiled["functions"])  # no part of an inference


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        (lambda weights: weights[-1].update(shape=[3, 3, 64, 32]), "is not of the size of", 8),
        (lambda weights: weights[-1].update(shape=[1 << 40]), "shape: 1099511627776 is not from 0 to", 8),
        (lambda weights: weights[-1].update(shape=[-1]), "shape: -1 is not from 0 to", 8),
        (lambda weights: weights[-1].update(shape=[1 << 20, 1 << 20]), "is larger than 1 GiB", 8),
        (lambda weights: weights[-1].update(name="weights/9.bin"), "lists no file 'weights/9.bin'", 8),
        (lambda weights: weights[-1].update(name="../net.onnx"), "lists no file '../net.onnx'", 8),
        # The library's function takes another.
        (lambda weights: weights[-1].update(shape=[64, 64, 9]), "cannot be loaded", 8),
        (lambda weights: weights[-1].update(dtype="int32"), "cannot be loaded", 8),
        (lambda weights: weights.extend(list(weights)), "cannot be loaded", 8),
        # Nothing is transformed, and the network is called with too few.
        (lambda weights: weights.clear(), "the inference failed", 1),
    ],
)
def test_manifests_with_false_weights_fail(
    agent: Path, transforming: Path, tmp_path: Path, change: Callable[[list[Json]], object], said: str, code: int
) -> None:
    package = unpack(transforming, tmp_path / "package")
    with manifest_of(package) as manifest:
        change(manifest["transformed"])
    assert said in refused(agent, "run", package, "--fill", "ones", code=code)


# Slow, as every test that needs an agent for another architecture: zig builds its C++ library for each first.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "machine"), [("rpi4", "EM_AARCH64"), ("rpi-armhf", "EM_ARM"), ("visionfive2", "EM_RISCV")]
)
def test_the_agent_of_a_board_tests_a_package_under_emulation(board: str, machine: str, tmp_path: Path) -> None:
    *_, built = command = command_of(board)
    assert assert_needs_little(Path(built), board, most_bytes=5_000_000).machine == machine
    package = unpacked(tiny(tmp_path / "net.onnx"), board)
    for task in ("verify", "selftest"):
        printed(*command, task, package)
