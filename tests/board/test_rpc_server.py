"""Servers of TVM's RPC: on boards through SSH, on this machine; what befalls them, and that nothing is left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cable import Cable
from support.commands import Notebook, becomes, generous, printed
from support.listeners import beyond_loopback, facts_from, listening, owner, sockets
from support.virtual_boards import Start, left_on, said

from edgedeploy.errors import BoardConnectionError, InputError, RpcError, UnsuitableBoardError
from edgedeploy.remote.address import Address, address_of
from edgedeploy.rpc.device import require_fitting_device
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import Endpoint, require_device, summary, tracker
from edgedeploy.target.board import load_board
from edgedeploy.target.triples import architecture_of
from edgedeploy.virtual.board import VirtualBoard, down

# The quick tests have `edgedeploy tune` as a whole, in test_tuning.py.
pytestmark = pytest.mark.slow

pytest.importorskip("tornado", reason="TVM's tracker needs tornado: pip install 'edgedeploy[tune]'")

KEY = "a:key"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with tracker() as found:
        yield found


def free(endpoint: Endpoint) -> int:
    known = summary(endpoint)
    return known[KEY].free if KEY in known else 0


MACHINES = {"local": "x86_64", "rpi4": "aarch64", "rpi-armhf": "arm", "visionfive2": "riscv64"}


@pytest.mark.parametrize(("board", "machine"), MACHINES.items())
def test_a_trackers_clients_reach_a_board_on_loopback_alone(start: Start, board: str, machine: str) -> None:
    if board == "local" and os.uname().machine != machine:
        pytest.skip("the machine of the tests is of another kind")
    virtual = start(board, name=f"rpc-{board}")
    with beyond_loopback() as beyond, tracker() as endpoint:
        with BoardServer(address_of(virtual), load_board(board), endpoint, KEY) as server:
            for _ in range(2):
                require_device(endpoint, KEY)
                assert facts_from(endpoint, KEY)["elf"]["machine"] == architecture_of(machine).elf_machine
            require_fitting_device(endpoint, KEY, load_board(board))
            assert server.run("echo there") == "there"
            assert summary(endpoint)[KEY].addresses == (f"127.0.0.1:{server.port}",)
        assert not listening(server.port)
    assert beyond == set()
    assert left_on(virtual) == ""


def test_several_boards_serve_one_key(own: VirtualBoard, endpoint: Endpoint) -> None:
    board = load_board("local")
    with BoardServer(address_of(own), board, endpoint, KEY), BoardServer(None, board, endpoint, KEY) as here:
        assert becomes(lambda: free(endpoint) == 2)
        assert here.name == "local"
    assert becomes(lambda: free(endpoint) == 0)


def test_without_a_tracker_the_key_is_enough(own: VirtualBoard) -> None:
    ask = "import sys, tvm.rpc; print(tvm.rpc.connect('127.0.0.1', int(sys.argv[1]), 'secret').cpu(0).exist)"
    with BoardServer(address_of(own), load_board("local"), None, "secret") as server:
        assert printed(sys.executable, "-c", ask, server.port, timeout=generous(60)) == "True\n"


def test_more_threads_than_processors_are_refused_with_the_agents_words(endpoint: Endpoint) -> None:
    with pytest.raises(RpcError, match="processors"):
        BoardServer(None, load_board("local"), endpoint, KEY, threads=100_000)


def test_an_agent_that_was_killed_is_started_again(own: VirtualBoard, endpoint: Endpoint) -> None:
    notebook = Notebook()
    with BoardServer(address_of(own), load_board("local"), endpoint, KEY, notebook) as server:
        port = server.port
        server.run("for p in /proc/[0-9]*; do case $(readlink $p/exe) in *rpc/*/agent) kill -9 ${p##*/};; esac; done")
        assert becomes(lambda: not server.alive)
        server.revive(30)
        assert server.alive
        assert server.port == port
        require_device(endpoint, KEY)
        assert facts_from(endpoint, KEY)["cores"] > 0
    assert any("runs again" in line for line in notebook.lines)
    assert left_on(own) == ""


def test_a_lost_connection_ends_and_revives_agents(own: VirtualBoard, endpoint: Endpoint, tmp_path: Path) -> None:
    with Cable(own, tmp_path) as cable, BoardServer(cable.address, load_board("local"), endpoint, KEY) as server:
        require_device(endpoint, KEY)
        cable.cut()
        assert becomes(lambda: not server.alive)
        assert becomes(lambda: left_on(own) == "")
        assert free(endpoint) == 0
        server.revive(30)
        require_device(endpoint, KEY)
        assert facts_from(endpoint, KEY)["cores"] > 0


def test_a_network_cut_without_a_word_is_survived(own: VirtualBoard, endpoint: Endpoint, tmp_path: Path) -> None:
    with Cable(own, tmp_path) as cable, BoardServer(cable.address, load_board("local"), endpoint, KEY) as server:
        first = set(left_on(own).splitlines())
        cable.freeze()
        began = time.monotonic()
        server.revive(30)
        assert time.monotonic() - began < generous(20)
        assert facts_from(endpoint, KEY)["cores"] > 0
        # The first agent hears nothing any more, and ends.
        assert first < set(left_on(own).splitlines())
        assert becomes(lambda: first.isdisjoint(left_on(own).splitlines()), 60)
        assert server.alive


@pytest.mark.parametrize("key", ["", "a b", "--key", "a\nb", "ü" * 101])
def test_bad_keys_are_refused(endpoint: Endpoint, key: str) -> None:
    with pytest.raises(InputError, match="cannot be a key"):
        BoardServer(None, load_board("local"), endpoint, key)


def test_a_board_that_cannot_be_reached_is_told_before_the_agent_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.rpc.server.agent_for", lambda *given, **options: pytest.fail("it is built"))
    with pytest.raises(BoardConnectionError, match="cannot be reached"):
        BoardServer(Address("127.0.0.1", "board", 1), load_board("local"), None, KEY)


def test_a_board_that_reboots_serves_again(start: Start, endpoint: Endpoint, tmp_path: Path) -> None:
    notebook = Notebook()
    virtual = start("local", name="rebooting")
    with (
        Cable(virtual, tmp_path) as cable,
        BoardServer(cable.address, load_board("local"), endpoint, KEY, notebook) as server,
    ):
        down(virtual)
        assert becomes(lambda: not server.alive)
        with pytest.raises(BoardConnectionError, match="did not come back within 2 s"):
            server.revive(2)
        cable.lead_to(start("local", name="rebooting"))
        server.revive(30)
        require_device(endpoint, KEY)
    assert any("waiting for" in line for line in notebook.lines)


def test_a_tracker_that_was_killed_has_its_devices_again(own: VirtualBoard, endpoint: Endpoint) -> None:
    with BoardServer(address_of(own), load_board("local"), endpoint, KEY) as server:
        require_device(endpoint, KEY)
        os.kill(owner(sockets()[endpoint.host, endpoint.port]), signal.SIGKILL)
        assert becomes(lambda: not listening(endpoint.port))
        assert becomes(lambda: listening(endpoint.port))
        assert require_device(endpoint, KEY, 20).total == 1
        assert server.alive


SERVE = """
import json, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs are started without
from edgedeploy.target.board import load_board
from edgedeploy.remote.address import parse_address
from edgedeploy.rpc.server import BoardServer
from edgedeploy.rpc.tracker import tracker

place = parse_address(sys.argv[1]) if sys.argv[1] else None
with tracker() as endpoint, BoardServer(place, load_board("local"), endpoint, "a:key") as server:
    print(json.dumps([endpoint.port, server.port]), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
@pytest.mark.parametrize("on_board", [True, False], ids=["on a board", "here"])
def test_nothing_is_left_when_the_process_that_serves_ends(own: VirtualBoard, how: int, on_board: bool) -> None:
    command = [sys.executable, "-c", SERVE, f"virtual:{own.name}" if on_board else ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        ports = json.loads(process.stdout.readline())
        require_device(Endpoint("127.0.0.1", ports[0]), KEY)
        process.send_signal(how)
        process.wait(generous(30))
    assert becomes(lambda: not any(map(listening, ports)))
    assert becomes(lambda: left_on(own) == "")
    home = Path(os.environ["XDG_DATA_HOME"]) / "edgedeploy" / "rpc"
    assert becomes(lambda: not home.is_dir() or not list(home.iterdir()))


def test_what_a_dead_server_left_is_removed_by_the_next(own: VirtualBoard, endpoint: Endpoint) -> None:
    said(own, "cd && mkdir -p .local/share/edgedeploy/rpc/4194303")
    with BoardServer(address_of(own), load_board("local"), endpoint, KEY):
        pass
    assert left_on(own) == ""


def test_a_full_disk_is_reported(start: Start, endpoint: Endpoint) -> None:
    virtual = start("local", name="no-room", disk_mib=16)
    said(virtual, "dd if=/dev/zero of=fill bs=1M count=64")
    began = time.monotonic()
    with pytest.raises(UnsuitableBoardError, match="not enough room"):
        BoardServer(address_of(virtual), load_board("local"), endpoint, KEY)
    assert time.monotonic() - began < generous(15)
    assert left_on(virtual) == ""
    assert free(endpoint) == 0


def test_a_board_of_another_architecture_is_refused(own: VirtualBoard, endpoint: Endpoint) -> None:
    with pytest.raises(UnsuitableBoardError, match="EM_AARCH64"):
        BoardServer(address_of(own), load_board("rpi4"), endpoint, KEY)
    assert left_on(own) == ""


def test_a_device_of_another_architecture_is_found_by_asking_it(endpoint: Endpoint) -> None:
    with BoardServer(None, load_board("local"), endpoint, KEY):
        began = time.monotonic()
        with pytest.raises(UnsuitableBoardError, match="does not run code for armv7a"):
            require_fitting_device(endpoint, KEY, load_board("rpi-armhf"))
        assert time.monotonic() - began < generous(15)
        notebook = Notebook()
        require_fitting_device(endpoint, KEY, load_board("local"), progress=notebook)
        assert notebook.lines == []
