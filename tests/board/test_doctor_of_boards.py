"""`edgedeploy doctor` of a board over SSH: each step of the way there, and each fault there, made for real."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from conftest import Command
from packaging.version import Version
from support.commands import becomes, generous, json_of, need, printed
from support.listeners import serving_each
from support.profiles import write_profile
from support.virtual_boards import Start, made_key, new_key, sleep_after_greeting, stanza, write_config

from edgedeploy.doctor import opencl
from edgedeploy.doctor.case import Case, case_of
from edgedeploy.doctor.check import Finding, State
from edgedeploy.doctor.examination import CHECKS, examine
from edgedeploy.remote.address import Address, address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe
from edgedeploy.remote.hostkeys import known_hosts_file
from edgedeploy.target.board import load_board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.target.resolved import resolve
from edgedeploy.virtual.board import VirtualBoard

# Slow, but for the tests that say otherwise.
pytestmark = pytest.mark.quick()

NAMED = {each.name: each for each in CHECKS}
WAY = ("address", "SSH server", "host key", "login")

EVERYTHING = "cd && find . -mindepth 1 | sort"


@pytest.fixture
def virtual(start: Start) -> VirtualBoard:
    return start("local", name="patient")


@pytest.fixture
def line(virtual: VirtualBoard) -> Iterator[Connection]:
    clear = "cd && chmod -R u+rwx . && rm -rf ./* ./.l* ./.e*"
    with Connection(address_of(virtual)) as connection:
        connection.run(clear)
        yield connection
        connection.run(clear)


@pytest.fixture
def case(virtual: VirtualBoard, line: Connection) -> Iterator[Case]:
    with case_of(resolve("local"), ["virtual:patient"]) as made:
        assert {each.state for each in look(made, *WAY).values()} == {State.OK}
        yield made


def look(case: Case, *names: str) -> dict[str, Finding]:
    return {each.check.name: each.finding for each in examine(case, [NAMED[name] for name in names])}


def finding(case: Case, *names: str, state: State = State.FAILED) -> Finding:
    """What the last of some checks finds."""
    found = look(case, *names)[names[-1]]
    assert found.state is state
    return found


@pytest.mark.quick("local")
@pytest.mark.parametrize("board", ["local", "rpi4"])
def test_a_working_board_is_ready_and_nothing_stays_there(board: str, board_command: Command, start: Start) -> None:
    with Connection(address_of(start(board))) as connection:
        wanted, there = load_board(board).glibc, probe(connection).glibc
        if wanted and there and Version(wanted) > Version(there):
            pytest.skip(f"this machine builds for glibc {wanted}, and virtual boards have {there}")
        before = connection.run(EVERYTHING).text
        said = json_of(board_command, "doctor", "--board", board, "--virtual")
        assert connection.run(EVERYTHING).text == before
    states = {each["name"]: each["state"] for each in said["checks"]}
    assert {states[name] for name in (*WAY, "architecture", "glibc", "releases", "program there")} == {"ok"}
    assert states["agent"] in ("ok", "warning")  # it may not be built yet


def test_another_architecture_than_the_profiles_is_a_fault(board_command: Command, virtual: VirtualBoard) -> None:
    code, out, err = board_command("doctor", "--board", "rpi4", "--host", "virtual:patient")
    assert code == 22
    assert "board: architecture: failed: its code is EM_AARCH64 (64 bits), the board runs EM_X86_64 (64 bits)" in out
    assert "  try: name the profile of this board: edgedeploy boards" in out
    assert "board: agent: not applicable: not looked at, because of architecture" in out
    assert "board: releases: ok" in out
    assert "not in order: architecture" in err


def test_an_agent_on_the_board_is_asked_and_none_is_sent_for_nothing(case: Case, line: Connection, agent: Path) -> None:
    assert look(case, "architecture", "agent")["agent"].found.endswith("runs there; it was removed again")
    content = [agent.read_bytes()]
    put = 'mkdir -p "$1" && cat >"$1/agent" && chmod 755 "$1/agent"'
    assert line.run(put, ".local/share/edgedeploy", content=content).code == 0
    sent = case.connection.sent
    found = look(case, "architecture", "agent")
    assert found["agent"].found == "it is there, runs, and belongs to this edgedeploy"
    assert case.connection.sent - sent < 10_000


def test_an_agent_not_built_yet_is_no_fault(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "not built yet" in finding(case, "architecture", "agent", state=State.WARNING).found


@pytest.fixture
def ssh(ssh: Path, virtual: VirtualBoard) -> Path:
    """A home folder from which `desk` is the board's name, but with no trust in its host key."""
    write_config(ssh, stanza("desk", virtual))
    return ssh


def on_the_way(*, strict: bool = False) -> dict[str, Finding]:
    with case_of(resolve("local"), ["desk"], strict=strict) as case:
        return look(case, *WAY)


def test_an_unknown_host_key_is_refused_or_recorded_with_a_warning(ssh: Path, virtual: VirtualBoard) -> None:
    found = on_the_way(strict=True)
    assert found["host key"].state is State.FAILED
    assert "is not known" in found["host key"].found
    assert found["login"].state is State.NOT_APPLICABLE
    assert not known_hosts_file().exists()
    fingerprint = paramiko.ECDSAKey(filename=str(virtual.folder / "etc/ssh/host_key")).fingerprint
    found = on_the_way()
    assert found["host key"].state is State.WARNING
    assert fingerprint in found["host key"].found
    assert found["login"].state is State.OK
    assert on_the_way()["host key"].state is State.OK


@pytest.mark.quick("*")
def test_a_changed_host_key_is_refused_with_the_command_to_forget_it(ssh: Path, virtual: VirtualBoard) -> None:
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{virtual.port} {new_key()}\n")
    found = on_the_way()["host key"]
    assert found.state is State.FAILED
    assert "has changed" in found.found
    assert any("ssh-keygen" in hint for hint in found.hints)


def test_an_unknown_user_key_is_told_from_a_host_key(ssh: Path, virtual: VirtualBoard, tmp_path: Path) -> None:
    other = made_key(tmp_path / "other")
    write_config(ssh, stanza("desk", virtual, key=False, more=f"IdentityFile {other}"))
    found = on_the_way()
    assert found["host key"].state is State.WARNING  # it was not known before
    assert found["login"].state is State.FAILED
    assert found["login"].found.endswith("refuses the login: it accepts none of the keys that were offered")
    assert any("ssh-copy-id" in hint for hint in found["login"].hints)


def test_a_board_that_hangs_while_we_log_in_does_not_hold_up_the_rest() -> None:
    with serving_each(sleep_after_greeting) as port, case_of(resolve("rpi4"), [f"pi@127.0.0.1:{port}"]) as case:
        started = time.monotonic()
        results = examine(case, CHECKS, limit_s=6)
        assert time.monotonic() - started < generous(10)
    found = {each.check.name: each.finding for each in results}
    assert found["SSH server"].state is State.OK
    # The check's own limit, or, where a busy machine makes that long, the login's.
    assert re.search("^no answer within|did not answer within", found["host key"].found)
    assert found["folders"].state is State.OK


def test_a_folder_of_releases_that_must_not_be_written_is_found(case: Case, line: Connection) -> None:
    line.run("mkdir -p .local/share && chmod 500 .local/share")
    found = finding(case, "releases")
    assert "may not write there" in found.found
    assert "chown" in found.hints[0]


def test_a_full_disk_is_found_by_writing_to_it(start: Start) -> None:
    full = start("local", name="full", disk_mib=16)
    with Connection(address_of(full)) as connection, case_of(resolve("local"), ["virtual:full"]) as case:
        connection.run("dd if=/dev/zero of=filler bs=1M count=12")
        assert "8 MiB could not be written" in finding(case, *WAY, "releases").found
        assert connection.run(EVERYTHING).text == "./filler"
        connection.run("rm filler")
        assert "16 MiB are free" in finding(case, "releases", state=State.WARNING).found


def test_an_older_glibc_than_the_profile_states_is_found(virtual: VirtualBoard, tmp_path: Path) -> None:
    with case_of(resolve(write_profile(tmp_path, "local", glibc="2.99")), ["virtual:patient"]) as case:
        assert finding(case, *WAY, "architecture", "glibc").found.startswith("2.36, the profile states 2.99")


@contextmanager
def through(case: Case, address: Address) -> Iterator[Case]:
    """The same board, logged in to through another of its SSH servers."""
    with Connection(address) as connection:
        yield replace(case, address=address, connection=connection)


def test_programs_that_the_board_lacks_are_named(case: Case, line: Connection, sshd: Callable[..., Address]) -> None:
    link = 'mkdir few && for name in sh cat dd df find id mkdir rm sed; do ln -s "$(command -v $name)" few/; done'
    assert line.run(link).code == 0
    with through(case, sshd(f"SetEnv PATH={line.run('pwd').text}/few")) as poor:
        found = finding(poor, "programs for releases")
    # Busybox's shell has many of the programs in itself.
    assert re.fullmatch(r"the board has no ((chmod|cut|du|ln|mv|readlink|sha256sum), )*flock(, .*)?", found.found)


def test_a_board_without_sftp_takes_no_releases(case: Case, sshd: Callable[..., Address]) -> None:
    with through(case, sshd()) as without:
        found = finding(without, "programs for releases")
    assert "has no SFTP" in found.found
    assert "apt-get install openssh-sftp-server there" in found.hints


@pytest.mark.parametrize("line", ["AllowTcpForwarding no", "PermitOpen none", "PermitListen none"])
def test_a_server_without_port_forwarding_is_a_warning(case: Case, sshd: Callable[..., Address], line: str) -> None:
    with through(case, sshd(line)) as closed:
        assert "tuning needs that" in finding(closed, "port forwarding", state=State.WARNING).found


def test_a_home_folder_from_which_no_program_runs_is_told_with_the_reason(case: Case, virtual: VirtualBoard) -> None:
    need("nsenter", "util-linux")
    home = f"{virtual.folder}/mount/root/home/{virtual.user}"
    options = ("-t", "tmpfs", "-o", "noexec,uid=1000", "tmpfs")
    inside = ["nsenter", "-t", str(virtual.process.pid), "--mount"]
    printed(*inside, "mount", *options, home)
    try:
        shutil.copy("/bin/true", case.program)
        found = finding(case, "program there")
    finally:
        printed(*inside, "umount", "--lazy", home)
    assert "does not allow programs there" in found.found
    assert "noexec" in found.hints[0]


def test_a_program_that_does_not_run_there_is_found(case: Case, line: Connection) -> None:
    case.program.write_bytes(b"#!/bin/sh\necho no memory >&2; kill -SEGV $$\n")
    assert "it was ended by SIGSEGV" in finding(case, "program there").found
    assert ".edgedeploy-doctor" not in line.run(EVERYTHING).text
    assert becomes(lambda: "sleep" not in line.run("ps").text), "what watched over the program ends with it"


@pytest.fixture
def graphics(case: Case) -> Case:
    """The board, where networks are to run on Intel's graphics."""
    return replace(case, board=case.board.model_copy(update={"devices": [OpenCL(name="UHD", kind="intel")]}))


def test_a_board_without_opencl_says_what_is_missing_there(graphics: Case) -> None:
    hints = finding(graphics, "toolchain", "ICD files").hints
    assert hints == ("on the board: sudo apt install intel-opencl-icd",)
    found = finding(graphics, "devices")
    assert found.found.startswith("no libOpenCL: ")
    assert found.hints == ("on the board: sudo apt install ocl-icd-libopencl1",)
    assert finding(graphics, "GPU nodes").found == "no /dev/dri/renderD* found"


def test_a_closed_gpu_node_names_its_group(graphics: Case, line: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    line.run("mkdir -p fake/dev/dri && : >fake/dev/dri/renderD128 && chmod 0 fake/dev/dri/renderD128")
    monkeypatch.setattr(opencl, "ROOT", line.run("cd fake && pwd").text)
    found, user = finding(graphics, "GPU nodes"), line.run("id -un").text
    assert found.found == f"{user} may not open /dev/dri/renderD128 (group {user})"
    assert found.hints == (f"on the board: sudo usermod -aG {user} {user}, and log in again",)
    line.run("chmod 600 fake/dev/dri/renderD128")
    finding(graphics, "GPU nodes", state=State.OK)
