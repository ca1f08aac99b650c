"""Virtual boards: other machines to all that reaches them, hostile ones too, and nothing is left of them."""

import json
import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from conftest import Command
from support.commands import HOSTILE, SHOWN, assert_is_text, becomes, executable, json_of, need, printed, refused
from support.listeners import listening, sockets
from support.virtual_boards import Start, root_of, said

from edgedeploy.errors import VirtualBoardError
from edgedeploy.target.board import load_board
from edgedeploy.target.facts import stored
from edgedeploy.target.hosts import cpuinfo_of, missing_features
from edgedeploy.virtual import emulation
from edgedeploy.virtual.board import VirtualBoard, down, find, reboot, running
from edgedeploy.virtual.process import Process


def connect(virtual: VirtualBoard, **key: object) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    client.load_host_keys(str(virtual.known_hosts))
    key = key or {"key_filename": str(virtual.key)}
    client.connect("127.0.0.1", virtual.port, virtual.user, allow_agent=False, look_for_keys=False, **key)
    return client


def mounted_here() -> str:
    return Path("/proc/mounts").read_text()


def test_has_users_a_name_and_this_machines_architecture(own: VirtualBoard) -> None:
    assert said(own, "id -un; hostname; pwd") == "board\nown\n/home/board"
    assert not own.emulated
    assert said(own, "uname -m") == platform.machine()


@pytest.mark.parametrize(
    ("board", "machine", "part", "core_is_known"),
    [
        ("rpi4", "aarch64", "0xd08", True),
        ("rpi-armhf", "armv7l", "0xc07", True),
        pytest.param("visionfive2", "riscv64", "sifive,u74-mc", False, marks=pytest.mark.slow),
    ],
)
def test_emulates_the_boards_core(start: Start, board: str, machine: str, part: str, core_is_known: bool) -> None:
    virtual = start(board)
    assert said(virtual, "uname -m; id -un") == f"{machine}\n{virtual.user}"
    assert part in said(virtual, "cat /proc/cpuinfo")
    if virtual.emulated:
        # What programs are told of the core is that core's: a newer one's instructions are not among it.
        assert "AT_HWCAP" in said(virtual, "LD_SHOW_AUXV=1 getconf PAGE_SIZE")
        core = emulation.emulation_of(load_board(board)).cpu
        assert (f"QEMU_CPU={core}" if core else "USER=") in said(virtual, "env")
        assert (core is not None) == core_is_known


def test_an_older_suite_brings_an_older_glibc(start: Start) -> None:
    assert said(start("local", name="old", suite="bullseye"), "getconf GNU_LIBC_VERSION") == "glibc 2.31"


def test_takes_files_over_sftp(own: VirtualBoard) -> None:
    with connect(own) as client, client.open_sftp() as sftp:
        with sftp.open("sent", "wb") as stream:
            stream.write(b"content")
        assert sftp.stat("sent").st_size == 7
    assert said(own, "cat sent; rm sent") == "content"


def test_what_is_written_stays_on_the_board(own: VirtualBoard, start: Start) -> None:
    said(own, "echo here >/tmp/file")
    assert said(start("local", name="second"), "ls /tmp") == ""
    assert said(own, "cat /tmp/file") == "here"


def test_its_disk_has_the_size_that_was_asked_for(start: Start) -> None:
    virtual = start("local", name="small", disk_mib=16)
    assert "No space left" in said(virtual, "dd if=/dev/zero of=big bs=1M count=20 2>&1")
    assert 15 << 20 < int(said(virtual, "wc -c <big")) <= 16 << 20


def test_only_its_own_key_logs_in(own: VirtualBoard) -> None:
    with pytest.raises(paramiko.AuthenticationException):
        connect(own, pkey=paramiko.RSAKey.generate(2048))


def test_listens_on_loopback_only(own: VirtualBoard) -> None:
    assert [address for address, port in sockets() if port == own.port] == ["127.0.0.1"]


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o077])
def test_starts_whatever_the_users_umask_is(start: Start, mask: int) -> None:
    before = os.umask(mask)
    try:
        virtual = start("local", name="masked")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert said(virtual, "umask; stat -c %a /run/sshd /tmp").split() == ["0022", "755", "1777"]
    down(virtual)


def test_is_found_again_and_one_of_another_kind_is_not_mistaken_for_it(own: VirtualBoard, start: Start) -> None:
    assert start("local", name="own") == own
    with pytest.raises(VirtualBoardError, match="suite bookworm, not bullseye"):
        start("local", name="own", suite="bullseye")


def test_ends_with_all_its_processes_and_mounts(start: Start) -> None:
    before = mounted_here()
    virtual = start("local", name="short")
    with connect(virtual) as client:
        client.exec_command("sleep 7654")
        down(virtual)
    assert mounted_here() == before
    assert not virtual.folder.exists()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists() and b"7654" in path.read_bytes()]


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_one_ends_and_is_no_longer_listed(start: Start, board_command: Command, kind: signal.Signals) -> None:
    before = mounted_here()
    virtual = start("local", name="killed")
    os.kill(virtual.process.pid, kind)
    assert becomes(lambda: not virtual.process.alive and not listening(virtual.port))
    assert mounted_here() == before
    assert "killed" not in board_command("virtual", "list")[1]
    assert not virtual.folder.exists()


def test_another_process_of_the_same_number_is_not_mistaken_for_it(start: Start) -> None:
    virtual = start("local", name="stale")
    down(virtual)
    virtual.folder.mkdir()
    stranger = virtual.process.model_copy(update={"pid": os.getpid()})
    (virtual.folder / "board.json").write_text(virtual.model_copy(update={"process": stranger}).model_dump_json())
    assert find("stale") is None


def test_the_command_line_starts_lists_and_ends(start: Start, board_command: Command) -> None:
    assert json_of(board_command, "virtual", "up", "local", "--name", "listed")["host"] == "127.0.0.1"
    assert "listed" in [each["name"] for each in json_of(board_command, "virtual", "list")]
    assert "listed" in board_command("virtual", "list")[1]
    assert board_command("virtual", "down", "listed") == (0, "listed has ended\n", "")
    assert "listed" not in [virtual.name for virtual in running()]
    assert "virtual up" in refused(board_command, 4, "virtual", "down", "listed")


@pytest.mark.parametrize(
    ("words", "answer"),
    [(["hostname"], "own\n"), (["echo", "-n", "--help"], "--help")],
    ids=["a command", "options of the command"],
)
def test_logs_in_with_openssh(start: Start, words: list[str], answer: str) -> None:
    start("local", name="own")
    need("ssh", "openssh-client")
    assert printed(sys.executable, "-m", "edgedeploy", "virtual", "ssh", "own", *words) == answer


def test_a_name_that_is_a_path_is_refused(board_command: Command) -> None:
    assert board_command("virtual", "up", "local", "--name", "../x")[0] == 7


def test_a_suite_that_does_not_exist_leaves_nothing(start: Start, board_command: Command) -> None:
    up = ("virtual", "up", "local", "--name", "none", "--suite", "nosuchsuite")
    assert "nosuchsuite" in refused(board_command, 18, *up)
    assert find("none") is None


def test_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, board_command: Command) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "sudo" in refused(board_command, 18, "virtual", "up", "local", "--name", "denied")
    monkeypatch.undo()
    monkeypatch.setattr(emulation.shutil, "which", lambda name: None if "qemu" in name else f"/usr/bin/{name}")
    monkeypatch.setattr(emulation.platform, "machine", lambda: "riscv64")
    with pytest.raises(VirtualBoardError, match="qemu-aarch64-static") as caught:
        emulation.emulation_of(load_board("rpi4"))
    assert any("apt-get install qemu-user-static" in hint for hint in caught.value.hints)


@pytest.mark.slow
def test_one_without_systemd_cannot_be_rebooted(start: Start) -> None:
    virtual = start("local")
    with pytest.raises(VirtualBoardError, match="has no systemd"):
        reboot(virtual)
    with pytest.raises(VirtualBoardError, match="runs without systemd"):
        start("local", systemd=True)


@pytest.mark.slow
def test_one_that_is_still_starting_is_not_rebooted(start: Start, tmp_path: Path) -> None:
    starting = Process.start(["sleep", "60"], tmp_path / "log")  # systemd is no child of it yet
    virtual = start("local").model_copy(update={"systemd": True, "process": starting})
    try:
        with pytest.raises(VirtualBoardError, match="is starting or ending"):
            reboot(virtual)
    finally:
        starting.end()
    with pytest.raises(VirtualBoardError, match="is starting or ending"):
        reboot(virtual)


def test_the_emulated_cpuinfo_has_what_code_for_the_core_needs() -> None:
    cores = [("armv7a", "cortex-a7"), *(("aarch64", cpu) for cpu in ("cortex-a53", "cortex-a72", "cortex-a76"))]
    for architecture, cpu in cores:
        lines = cpuinfo_of(architecture, cpu, 4).splitlines()
        assert lines.count("CPU implementer\t: 0x41") == 4
        features = next(line.partition(":")[2].split() for line in lines if line.startswith("Features"))
        assert not missing_features(cpu, features)
    assert missing_features("cortex-a76", ["fp", "asimd", "crc32"])
    # A 64-bit kernel says "asimd" to the 32-bit programs of a Raspberry Pi 4.
    assert not missing_features("cortex-a7", ["fp", "asimd", "crc32"])


HOST = "virtual:hostile"


@pytest.fixture(scope="module")
def board(start: Start) -> Iterator[VirtualBoard]:
    virtual = start("local", name="hostile")
    # As `. /etc/os-release` reads it, and the agent, which takes what stands between the quotes.
    (root_of(virtual) / "etc/os-release").write_text(f'PRETTY_NAME="{HOSTILE}"\n')
    yield virtual
    down(virtual)


def test_what_a_board_says_it_is_is_text(board: VirtualBoard, board_command: Command) -> None:
    for words in (["probe", "--board", "local", "--host", HOST], ["show", "local"]):
        code, out, err = board_command("boards", *words)
        assert code == 0, err
        assert_is_text(out, err)
        assert SHOWN.partition(r"\n")[0] in out
    code, out, err = board_command("boards", "show", "local", "--json")
    [said] = [each["facts"]["system"] for each in json.loads(out)["probed"] if each["host"] == HOST]
    assert said == HOSTILE.replace("\n", " ")
    assert_is_text(out)


@pytest.mark.slow
def test_what_is_printed_while_a_board_is_used_is_text(board: VirtualBoard, board_command: Command) -> None:
    assert_is_text(*board_command("doctor", "--board", "local", "--host", HOST)[1:])
    for words in (["push", "digits"], ["run", "digits"], ["releases", "list"], ["boards", "probe"]):
        code, out, err = board_command(*words, "--board", "local", "--host", HOST)
        assert code == 0, err
        assert_is_text(out, err)
    # Now by its agent, which reads the file itself.
    assert "\x1b[2J" in str(next(each.facts.system for each in stored("local") if each.host == HOST))


def test_what_a_boards_programs_say_is_text_in_errors(board: VirtualBoard, board_command: Command) -> None:
    agent = root_of(board) / "home" / board.user / ".local/share/edgedeploy/agent"
    agent.unlink(missing_ok=True)
    executable(agent, f"echo what\ncat >&2 <<'.'\n{HOSTILE}\n.")
    code, out, err = board_command("boards", "probe", "--board", "local", "--host", HOST)
    assert code == 13, err
    assert r"\x1b[2J" in err
    assert_is_text(out, err)
