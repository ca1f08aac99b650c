"""Virtual boards that are run by systemd: what their root has beside that of others, and their control groups."""

from __future__ import annotations

import contextlib
from pathlib import Path

from edgedeploy.errors import VirtualBoardError

PACKAGES = ("systemd", "dbus", "libpam-systemd")

_SERVICE_OF_BUS = "messagebus:x:101:101::/nonexistent:/usr/sbin/nologin"
_LEFT_OUT = ("systemd-sysusers", "systemd-tmpfiles-setup", "systemd-tmpfiles-setup-dev")
_KINDS = ("auth", "account", "session", "password")
# Who logs in is for sshd and its keys to say; logind hears of the session.
_IN_A_SESSION = [*(f"{kind} required pam_permit.so" for kind in _KINDS), "session optional pam_systemd.so"]


def control_group(name: str) -> Path:
    """The folder of the control groups of a virtual board."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
            return root / f"edgedeploy-virtual-{name}"
    raise VirtualBoardError(
        "virtual boards with systemd need control groups of version 2",
        why="neither /sys/fs/cgroup nor /sys/fs/cgroup/unified has them",
        hints=["mount them: mkdir /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"],
    )


def forget_control_group(name: str) -> None:
    """Remove what the control groups of a virtual board that has ended left."""
    with contextlib.suppress(VirtualBoardError):
        folder = control_group(name)
        for each in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                each.rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()


def users() -> tuple[list[str], list[str]]:
    """Lines of passwd and group beside those of all virtual boards."""
    return [_SERVICE_OF_BUS], ["messagebus:x:101:", "tty:x:5:", "utmp:x:43:", "video:x:44:"]


def files(user: str, port: int) -> dict[str, list[str]]:
    """Lines of files beside those of all virtual boards.

    sshd, which listens on `port`, is one of systemd's services. The `user` lingers from the start: to ask for that
    takes polkit, which does not run under qemu.
    """
    return {
        "etc/machine-id": [],
        f"var/lib/systemd/linger/{user}": [],
        # What they do is done here; their credentials need a file system that qemu does not know.
        **{f"etc/systemd/system/{name}.service": [] for name in _LEFT_OUT},
        "etc/pam.d/other": [f"{kind} required pam_deny.so" for kind in _KINDS],
        "etc/pam.d/sshd": _IN_A_SESSION,
        "etc/pam.d/systemd-user": _IN_A_SESSION,
        "etc/systemd/system/default.target": [
            "[Unit]",
            "Requires=basic.target dbus.socket systemd-logind.service ssh.service",
            "After=basic.target dbus.socket systemd-logind.service ssh.service",
            "AllowIsolate=yes",
        ],
        "etc/systemd/system/ssh.service": [
            "[Unit]",
            "After=systemd-logind.service",
            "[Service]",
            "RuntimeDirectory=sshd",
            f"ExecStart=/usr/sbin/sshd -D -e -f /etc/ssh/sshd_config -p {port}",
            "KillMode=process",
        ],
    }
