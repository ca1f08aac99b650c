"""Networks on a board give what they give here, and say on which board."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from cable import Cable
from conftest import Command
from support.agents import EMULATED
from support.commands import json_of, notes_of, output_of, put
from support.detection_networks import SIZE, detections
from support.networks import FEATURES, Graph, streamed_lstm
from support.recordings import write_film
from support.services import BASE
from support.virtual_boards import Bench, Start, own_servers

from edgedeploy.errors import BoardConnectionError, InputError, PackageError, ReleaseError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.package.archive import read_manifest
from edgedeploy.release.layout import folder_of
from edgedeploy.release.lock import locked
from edgedeploy.release.push import push
from edgedeploy.remote.address import address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.served import RemoteSession
from edgedeploy.runtime.session import Session
from edgedeploy.zoo.source import find_source


@pytest.fixture
def folder(bench: Bench) -> str:
    return folder_of("digits", bench.push(bench.first).id)


@pytest.fixture
def session(bench: Bench, folder: str) -> Iterator[RemoteSession]:
    with bench.connected() as connection, RemoteSession(connection, folder) as session:
        yield session


def test_outputs_are_those_of_onnxruntime(session: RemoteSession) -> None:
    reference = cpu_session(find_source("digits").file)
    for seed in range(3):
        inputs = {spec.name: fill(spec, "normal", seed) for spec in session.inputs}
        expected = reference.run(None, inputs)
        outputs = session.run(inputs)
        for spec, wanted in zip(session.outputs, expected, strict=True):
            assert outputs[spec.name].dtype == wanted.dtype
            np.testing.assert_allclose(outputs[spec.name], wanted, atol=1e-4 * np.abs(wanted).max() + 1e-6)


def test_times_are_measured_on_the_board(session: RemoteSession) -> None:
    inputs = {spec.name: fill(spec, "ones") for spec in session.inputs}
    timing = session.measure(inputs, repeat=7, number=2, warmup=1)
    assert len(timing.runs_ms) == 7
    assert min(timing.runs_ms) > 0


def test_each_function_of_the_network_is_timed_on_the_board_as_here(session: RemoteSession, bench: Bench) -> None:
    inputs = {spec.name: fill(spec, "ones") for spec in session.inputs}
    there = session.function_times(inputs, repeat=5, warmup=1)
    here = Session.open(bench.first).function_times(inputs, repeat=5, warmup=1)
    assert there.keys() == here.keys()
    assert "fused_conv2d_add1_relu1_scheduled" in there
    assert any(name.startswith("softmax") for name in there)
    for times in (*there.values(), *here.values()):
        assert len(times) == 5
        assert min(times) >= 0
    assert max(there["fused_conv2d_add1_relu1_scheduled"]) > 0
    outputs = session.run(inputs)  # and the session is as it was
    assert all(np.isfinite(array).all() for array in outputs.values())


def test_inputs_are_checked_here(session: RemoteSession) -> None:
    with pytest.raises(InputError, match="shape"):
        session.run({session.inputs[0].name: np.zeros((1, 1), np.float32)})
    assert session.run({session.inputs[0].name: fill(session.inputs[0], "zeros")})


def test_more_threads_than_the_board_has_are_refused(bench: Bench, folder: str) -> None:
    with bench.connected() as connection, pytest.raises(InputError, match="processors"):
        RemoteSession(connection, folder, threads=9999)


def test_a_package_that_is_damaged_on_the_board_does_not_run(bench: Bench, folder: str) -> None:
    bench.say(f"cd {folder} && rm model.so && echo x >model.so")
    with bench.connected() as connection, pytest.raises(PackageError):
        RemoteSession(connection, folder)


@pytest.mark.quick("SEGV-*", "KILL-*")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        # Its own words, and those of the SSH server.
        *((name, f"it was ended by SIG{name}") for name in ("FPE", "SEGV", "BUS", "ABRT", "TRAP", "SYS", "TERM")),
        ("KILL", "it was ended by SIGKILL, as happens when memory runs out"),
    ],
)
def test_an_agent_ended_by_a_signal_is_reported_with_its_name(bench: Bench, folder: str, name: str, why: str) -> None:
    with bench.connected() as connection, RemoteSession(connection, folder) as session:
        bench.say(f"pkill -{name} -f 'agent serve'")
        with pytest.raises(ReleaseError, match="ended") as raised:
            session.run({spec.name: fill(spec, "ones") for spec in session.inputs})
        assert raised.value.why == why


@pytest.mark.quick("1")
@pytest.mark.parametrize("sessions", [1, 2])
def test_one_session_of_a_connection_is_enough(bench: Bench, tmp_path: Path, sessions: int) -> None:
    settings = (f"MaxSessions {sessions}", "Subsystem sftp /usr/lib/openssh/sftp-server")
    with own_servers(bench.virtual, tmp_path) as sshd, Connection(sshd(*settings)) as connection:
        pushed = push(connection, bench.release(bench.second))
        with RemoteSession(connection, folder_of("digits", pushed.id)) as session, locked(connection):
            for _ in range(5):
                assert connection.run("echo on").text == "on"
            assert session.run({spec.name: fill(spec, "ones") for spec in session.inputs})
        assert connection.alive


def test_a_server_that_allows_no_session_is_told_by_its_setting(bench: Bench, tmp_path: Path) -> None:
    with own_servers(bench.virtual, tmp_path) as sshd, Connection(sshd("MaxSessions 0")) as connection:
        with pytest.raises(BoardConnectionError, match="allows no session") as raised:
            connection.run("true")
        assert raised.value.hints == ("look for MaxSessions in its sshd_config",)


def test_an_agent_that_ended_is_told_from_a_broken_connection(bench: Bench, folder: str, tmp_path: Path) -> None:
    with Cable(bench.virtual, tmp_path) as cable:
        connection = Connection(cable.address)
        session = RemoteSession(connection, folder)
        cable.cut()
        with pytest.raises(BoardConnectionError, match="broke"):
            session.run({spec.name: fill(spec, "ones") for spec in session.inputs})
        connection.close()


def test_nothing_runs_on_the_board_afterwards(bench: Bench, folder: str) -> None:
    with bench.connected() as connection, RemoteSession(connection, folder):
        assert "agent serve" in bench.say("ps")
    assert "agent serve" not in bench.say("sleep 0.5; ps")


def masked(log: str) -> str:
    """A log without its times, and without what stands for the machine."""
    return re.sub(r"\d+\.\d+ ms|thread \d+", "#", log)


def test_a_demo_prints_the_same_log_and_the_boards_line(bench: Bench, board_command: Command) -> None:
    here = output_of(board_command, "demo", "digits", "--board", "local")
    *lines, board = output_of(board_command, "demo", "digits", *bench.at).splitlines()
    assert masked("\n".join(lines)) == masked(here.rstrip("\n"))
    assert re.match(r"board : .+, \d+ cores", board)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    make = Connection.__init__

    def counting(self: Connection, address: Any, **options: Any) -> None:
        made.append(str(address))
        make(self, address, **options)

    monkeypatch.setattr(Connection, "__init__", counting)
    return made


def test_a_video_connects_once(bench: Bench, board_command: Command, connections: list[str], tmp_path: Path) -> None:
    digit = cv2.imread(str(find_source("digits").file.with_name("digit.png")))
    film = write_film(tmp_path / "three.avi", [digit] * 5)
    said = {}
    for place in ([], ["--host", bench.host]):
        out = output_of(board_command, "demo", "digits", "--board", "local", "--image", film, "--json", *place)
        *frames, last = map(json.loads, out.splitlines())
        assert last["summary"]["frames"] == 5
        said[len(connections)] = [[each["class_id"] for each in frame["results"]] for frame in frames]
        assert ("machine" in last["summary"]) == bool(place)
    assert said[0] == said[1]


def test_states_share_connections(bench: Bench, board_command: Command, connections: list[str], tmp_path: Path) -> None:
    network = streamed_lstm(tmp_path / "vad.onnx")
    frames = np.random.default_rng(0).standard_normal((3, 1, 1, FEATURES)).astype(np.float32)
    np.savez(tmp_path / "frames.npz", frame=frames)
    found = {}
    for place in ([], ["--host", f"virtual:{bench.virtual.name}"]):
        files = ["-i", tmp_path / "frames.npz", "-o", tmp_path / f"out{len(place)}.npz"]
        output_of(board_command, "run", network, *files, "--state", "hn=h", "--state", "cn=c", *place)
        with np.load(files[-1]) as written:
            found[len(connections)] = written["score"]
    assert found[0].shape == (3, 1, 1, 1, 1)
    np.testing.assert_array_equal(found[0], found[1])


def test_the_tail_runs_here_on_the_boards_outputs(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    network = detections(tmp_path / "boxes.onnx")
    # Of float64, which the network takes as float32: so does its tail.
    image = np.random.default_rng(0).random((1, 3, SIZE, SIZE))
    np.savez(tmp_path / "in.npz", image=image)
    files = ["-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz"]
    output_of(board_command, "run", network, *files, "--host", bench.host)
    session = cpu_session(network)
    names = [output.name for output in session.get_outputs()]
    with np.load(tmp_path / "out.npz") as found:
        assert found.files == names
        for name, wanted in zip(names, session.run(None, {"image": image.astype(np.float32)}), strict=True):
            assert (found[name].shape, found[name].dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_a_board_runs_the_entry_that_fits(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    graph = Graph()
    relu = graph.node("Relu", graph.conv(graph.input("x", [1, 3, "h", "w"]), 3, 8, 3))
    network = graph.save(tmp_path / "net.onnx", relu)
    shapes = [word for size in (8, 12) for word in ("--input-shape", f"x:1,3,{size},{size}")]
    package = json_of(board_command, "build", network, *shapes)[0]["package"]
    for size in (12, 8):
        x = np.random.default_rng(size).random((1, 3, size, size), dtype=np.float32)
        np.savez(tmp_path / "in.npz", x=x)
        files = ["-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz"]
        output_of(board_command, "run", package, *files, "--host", bench.host)
        [wanted] = cpu_session(network).run(None, {"x": x})
        with np.load(tmp_path / "out.npz") as found:
            np.testing.assert_allclose(found[found.files[0]], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_zoo")
def test_two_networks_share_a_connection(bench: Bench, board_command: Command, connections: list[str]) -> None:
    here = output_of(board_command, "demo", "facepipe", "--board", "local")
    there = output_of(board_command, "demo", "facepipe", *bench.at)
    assert len(connections) == 1
    *lines, board = there.splitlines()
    assert masked("\n".join(lines)) == masked(here.rstrip("\n"))
    assert len([line for line in lines if line.startswith("106 points: ")]) == 4
    assert board.startswith("board : ")
    assert (len(bench.trials("retinaface")), len(bench.trials("landmark-106"))) == (1, 1)


def test_a_demo_does_not_switch_releases(bench: Bench, board_command: Command) -> None:
    used = bench.push(bench.second)
    output_of(board_command, "demo", "digits", *bench.at)
    assert (bench.releases(), len(bench.trials()), bench.current()) == ([used.id], 1, used.id)


def test_a_demo_without_a_board_uses_the_last_one_that_was_built_for(bench: Bench, board_command: Command) -> None:
    put(Path("dist/local/any.tar.gz"), bench.first.read_bytes())
    assert "board local, the last one built for" in notes_of(board_command, "demo", "digits")


def test_run_gives_outputs_and_times_for_scripts(bench: Bench, board_command: Command) -> None:
    run = ("run", bench.first, "--host", bench.host)
    said = json_of(board_command, *run, "-o", "out.npz", "--repeat", 3, "--profile")
    assert said["model"] == "digits"
    assert said["machine"]
    assert said["min_ms"] <= said["median_ms"] <= said["max_ms"]
    assert said["memory"] == read_manifest(bench.first).memory.model_dump()
    assert 0 < said["agent_memory"]["anonymous_bytes"] <= said["agent_memory"]["resident_bytes"]
    assert said["functions"][0]["ms"] > 0
    assert {"runtime", "fused_conv2d_add1_relu1"} <= {each["function"] for each in said["functions"]}
    assert any(each.get("operations") for each in said["functions"])
    out = output_of(board_command, *run)
    assert re.search(r"memory: [\d,]+ bytes of workspace", out)
    assert re.search(r"memory of the agent in bytes: resident [\d,]+", out)
    assert list(np.load("out.npz")) == [each["name"] for each in said["outputs"]]


@pytest.mark.slow
@pytest.mark.parametrize("board", EMULATED)
def test_code_for_another_architecture_runs_on_an_emulated_board(board_command: Command, board: str) -> None:
    [built] = json_of(board_command, "build", "digits", "--board", board, "--virtual")
    assert built["checked"] == "emulated"
    assert 0 <= built["error_of_tolerance"] < 1
    code, out, err = board_command("demo", "digits", "--virtual")
    assert code == 0, err
    assert f"board {board}, the last one built for" in err
    assert re.search(r"-\n0\.99\d+, 3\n", out)
    assert re.search(r"board : .+ cores", out)
    assert "pushed" in output_of(board_command, "push", "digits", "--board", board, "--virtual")
    assert "in use" in output_of(board_command, "releases", "list", "--board", board, "--virtual")


@pytest.mark.slow
@pytest.mark.parametrize(("board", "machine"), [("rpi4", "aarch64"), ("rpi-armhf", "armv7l")])
def test_the_agent_runs_on_debian_11(board_command: Command, start: Start, board: str, machine: str) -> None:
    old = start(board, name=f"old-{board}", suite="bullseye")
    output_of(board_command, "push", "digits", "--board", board, "--host", f"virtual:{old.name}")
    release = f"cd {BASE} && ./agent %s releases/digits/current/"
    with Connection(address_of(old)) as connection:
        facts = json.loads(connection.run(f"cd {BASE} && ./agent facts").text)
        assert (facts["glibc"], facts["machine"]) == ("2.31", machine)
        assert json.loads(connection.run(release % "selftest").text)["passed"]
        done = json.loads(connection.run(release % "run" + " --fill selftest --output-dir out").text)
        assert [each["name"] for each in done["outputs"]] == ["prob"]
        paths = (f"{BASE}/out/output-0.bin", f"{BASE}/releases/digits/current/selftest/output-0.bin")
        found, wanted = (np.frombuffer(connection.run(f"cat {path}").output, np.float32) for path in paths)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * wanted.max())
    said = json_of(board_command, "run", "digits", "--board", board, "--host", f"virtual:{old.name}")
    assert said["machine"].startswith(machine)
