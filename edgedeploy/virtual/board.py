"""Start, find and end virtual boards.

A virtual board is a process (`board.sh` under unshare) with its children, and a folder with its record, keys and log.
A folder without the process is a leftover, and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from edgedeploy.base.closing import on_failure
from edgedeploy.base.documents import Record
from edgedeploy.base.files import writing
from edgedeploy.base.programs import capture, wait_until
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.settings import user_folder
from edgedeploy.base.text import fill_template
from edgedeploy.errors import InputError, UnknownNameError, VirtualBoardError
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.virtual.emulation import Emulation, emulation_of, register, require_means
from edgedeploy.virtual.process import Process
from edgedeploy.virtual.rootfs import SYSTEMD_PACKAGES, control_group, forget_control_group, rootfs

HOST = "127.0.0.1"
DEFAULT_DISK_MIB = 1024

_RECORD = "board.json"
_START_S = 300
# systemd's ancestors: the started shell, its parent, unshare.
_ABOVE_SYSTEMD = 3
# Their work is done here; their credentials need a file system that qemu does not know.
_MASKED = ("systemd-sysusers", "systemd-tmpfiles-setup", "systemd-tmpfiles-setup-dev")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


class VirtualBoard(Record):
    """A virtual board that was started for a profile (`board`); users log in at a port of 127.0.0.1."""

    name: str
    board: str
    suite: str
    architecture: str
    emulated: bool
    systemd: bool = False
    user: str
    port: int
    process: Process

    @property
    def folder(self) -> Path:
        """The folder with its files."""
        return _states() / self.name

    @property
    def key(self) -> Path:
        """The private key for the login."""
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        """The file of known hosts with its host key."""
        return self.folder / "known_hosts"


def up(
    resolved: ResolvedBoard,
    *,
    name: str | None = None,  # the virtual board's; the profile's if None
    suite: str | None = None,  # of Debian; the default of the board's architecture if None
    disk_mib: int | None = None,  # the size of its disk, in memory
    packages: Sequence[str] = (),  # additional Debian packages; ignored for a board that runs already
    systemd: bool = False,  # start systemd, with services and users' sessions, instead of only sshd
    progress: Progress = SILENT,
) -> VirtualBoard:
    """The virtual board of a profile: the one that runs, or a new one."""
    board, label = resolved.profile, resolved.label
    name = label if name is None else name
    if not _NAME.fullmatch(name):
        raise InputError(f"invalid name of a virtual board: {name!r}", hints=["use letters, digits, dots and dashes"])
    require_means()
    emulation = emulation_of(board)
    with _claimed(name), _umask(0o022):
        if running := find(name):
            _require_same(running, label, suite, systemd=systemd)
            return running
        user = board.ssh.user if board.ssh and _USER.fullmatch(board.ssh.user) else "board"
        register(emulation)
        suite = suite or emulation.suite
        more = [*(board.device.packages if board.device else ()), *(SYSTEMD_PACKAGES if systemd else ()), *packages]
        root = rootfs(suite, emulation.debian, progress, more)
        folder = _states() / name
        with progress.stage(f"start virtual board {name}"):
            with writing(folder):
                with socket.create_server((HOST, 0)) as listener:
                    port = listener.getsockname()[1]
                environment = board.device.environment if board.device else {}
                _prepare(folder, emulation, suite, user, port, environment, systemd=systemd)
                # Drivers that use the processor as the device ask the kernel about it.
                system = "processors" if board.accelerator else ""
                group = str(control_group(name)) if systemd else ""
                process = _start(folder, root, port, name, user, disk_mib or DEFAULT_DISK_MIB, system, group)
                virtual = VirtualBoard(
                    name=name,
                    board=label,
                    suite=suite,
                    architecture=emulation.debian,
                    emulated=emulation.qemu is not None,
                    systemd=systemd,
                    user=user,
                    port=port,
                    process=process,
                )
                (folder / _RECORD).write_text(virtual.model_dump_json(), encoding="utf-8")
            with on_failure(lambda: down(virtual)):
                _await_sshd(virtual)
        return virtual


def find(name: str) -> VirtualBoard | None:
    """The virtual board of a name, if it runs; leftovers are removed."""
    folder = _states() / name
    try:
        virtual = VirtualBoard.model_validate_json((folder / _RECORD).read_bytes())
    except (OSError, ValidationError):
        return None
    if virtual.process.alive:
        return virtual
    _forget(folder)
    return None


def running() -> list[VirtualBoard]:
    """The running virtual boards, sorted by name."""
    found = [find(path.parent.name) for path in sorted(_states().glob(f"*/{_RECORD}"))]
    return [virtual for virtual in found if virtual]


def require(name: str) -> VirtualBoard:
    """The virtual board of a name, which must run."""
    if virtual := find(name):
        return virtual
    names = [each.name for each in running()]
    raise UnknownNameError(
        f"no virtual board {name!r} runs",
        why=f"those that run: {', '.join(names)}" if names else "none runs",
        hints=["start one with `edgedeploy virtual up BOARD`"],
    )


def down(virtual: VirtualBoard) -> None:
    """End a virtual board, and remove its files."""
    virtual.process.end()
    _forget(virtual.folder)
    if virtual.systemd:
        forget_control_group(virtual.name)


def reboot(virtual: VirtualBoard) -> None:
    """Have systemd restart a virtual board, whose files stay."""
    before = _systemd_of(virtual)
    inside = ["nsenter", "--target", str(before), "--mount", "--pid", "--uts", "--ipc"]
    # An absolute path: PATH is this machine's.
    asked = capture([*inside, "/bin/systemctl", "reboot"])
    if asked.returncode != 0:
        raise VirtualBoardError(f"virtual board {virtual.name} does not reboot", why=asked.stderr.strip())
    wait_until(lambda: not (virtual.process.alive and Path(f"/proc/{before}").exists()), _START_S, 0.05)
    _await_sshd(virtual)


def _systemd_of(virtual: VirtualBoard) -> int:
    """The PID, on this machine, of the board's systemd."""
    if not virtual.systemd:
        raise VirtualBoardError(
            f"virtual board {virtual.name} has no systemd to reboot it",
            hints=[f"edgedeploy virtual down {virtual.name}", f"edgedeploy virtual up {virtual.board} --systemd"],
        )
    process = virtual.process.pid
    try:
        for _ in range(_ABOVE_SYSTEMD):
            process = int(Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()[0])
    except (OSError, IndexError):  # a process that has no child yet, or has ended
        raise VirtualBoardError(
            f"virtual board {virtual.name} is starting or ending",
            hints=["try again in a few seconds", "edgedeploy virtual list"],
        ) from None
    return process


def _states() -> Path:
    return user_folder("state") / "virtual"


@contextlib.contextmanager
def _claimed(name: str) -> Iterator[None]:
    """Lock a name, so that nobody else starts a board with it."""
    path = _states() / f".{name}.lock"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("w")
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _umask(mask: int) -> Iterator[None]:
    """Replace the user's umask: sshd refuses folders that others can write, and other users need to read them."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _require_same(virtual: VirtualBoard, label: str, suite: str | None, *, systemd: bool) -> None:
    differs = "without systemd" if systemd and not virtual.systemd else None
    for what, wanted, found in (("board", label, virtual.board), ("suite", suite or virtual.suite, virtual.suite)):
        if wanted != found:
            differs = differs or f"with {what} {found}, not {wanted}"
    if differs:
        hints = [f"edgedeploy virtual down {virtual.name}", "give the new one another --name"]
        raise VirtualBoardError(f"a virtual board {virtual.name!r} runs {differs}", hints=hints)


def _prepare(
    folder: Path, emulation: Emulation, suite: str, user: str, port: int, variables: Mapping[str, str], *, systemd: bool
) -> None:
    """Write the board's first files: keys, accounts, sshd's configuration, /proc/cpuinfo.

    The others are templates in `root`, and in `systemd`, where sshd is a service.
    """
    # For sshd's sessions; qemu reads the core from it.
    variables = {**({"QEMU_CPU": emulation.cpu} if emulation.cpu else {}), **variables}
    _forget(folder)
    (folder / "etc/ssh").mkdir(parents=True)
    (folder / "proc").mkdir()
    (folder / "mount").mkdir()
    folder.chmod(0o700)
    _make_key(folder / "key", folder / "etc/ssh/authorized_keys")
    _make_key(folder / "etc/ssh/host_key", folder / "etc/ssh/host_key.pub")
    host_key = (folder / "etc/ssh/host_key.pub").read_text(encoding="ascii")
    (folder / "known_hosts").write_text(f"[{HOST}]:{port} {host_key}", encoding="ascii")
    values = {"host": HOST, "user": user, "port": port, "suite": suite, "systemd": systemd}
    environment = " ".join(f"{name}={value}" for name, value in variables.items())
    for tree in ("root", *(["systemd"] if systemd else [])):
        with resources.as_file(resources.files("edgedeploy.virtual") / tree) as templates:
            for name in [path.relative_to(templates) for path in templates.rglob("*") if path.is_file()]:
                text = fill_template("edgedeploy.virtual", f"{tree}/{name}", environment=environment, **values)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="ascii")
    if systemd:
        # The user lingers from the start: enabling that needs polkit, which does not run under qemu.
        lingering = folder / "var/lib/systemd/linger" / user
        for path in (lingering, *(folder / f"etc/systemd/system/{name}.service" for name in _MASKED)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    if emulation.cpuinfo:
        (folder / "proc/cpuinfo").write_text(emulation.cpuinfo, encoding="ascii")


def _make_key(private: Path, public: Path) -> None:
    import paramiko

    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(private))
    public.write_text(f"{key.get_name()} {key.get_base64()}\n", encoding="ascii")


def _start(
    folder: Path, root: Path, port: int, name: str, user: str, disk_mib: int, system: str, group: str
) -> Process:
    with resources.as_file(resources.files("edgedeploy.virtual")) as scripts:
        namespaces = ("--mount", "--pid", "--uts", "--ipc")
        arguments = (str(root.resolve()), str(folder.resolve()), str(port), name, user, str(disk_mib), system, group)
        return Process.start(["unshare", *namespaces, "sh", str(scripts / "board.sh"), *arguments], folder / "log")


def _await_sshd(virtual: VirtualBoard) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and virtual.process.alive:
        with contextlib.suppress(OSError), socket.create_connection((HOST, virtual.port), timeout=5) as stream:
            if stream.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    log = (virtual.folder / "log").read_text(encoding="utf-8", errors="replace").strip()
    raise VirtualBoardError(
        f"virtual board {virtual.name} did not start",
        why=log[-500:] or f"its sshd did not answer within {_START_S} s",
        hints=["check that this machine allows mounts in a namespace: containers often need more privileges"],
    )


def _forget(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
