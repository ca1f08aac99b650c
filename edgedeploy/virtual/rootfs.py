"""Root file systems of virtual boards, by mmdebstrap and cached, and control groups for systemd."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import VirtualBoardError

# Debian's mirror; by default that of this machine's packages. Without updates, so that userlands stay the same.
MIRROR_VARIABLE = "EDGEDEPLOY_DEBIAN_MIRROR"

PACKAGES = (
    *("openssh-server", "openssh-sftp-server", "busybox-static", "libc6", "libc-bin", "util-linux"),
    # Agents read images with these.
    *("libjpeg62-turbo", "libpng16-16"),
)

SYSTEMD_PACKAGES = ("systemd", "dbus", "libpam-systemd")

# The largest folders, which no board needs.
_SUPERFLUOUS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "usr/share/perl*",
    "usr/lib/*/perl*",
)

_HOOKS = Path("/usr/share/mmdebstrap/hooks")
_TIMEOUT_S = 900

_ROOTS = FolderCache("rootfs")


def rootfs(suite: str, architecture: str, progress: Progress = SILENT, more: Sequence[str] = ()) -> Path:
    """The folder with the root file system of a Debian `suite` for an `architecture`, from the cache or created.

    It has `PACKAGES` and `more`. Packages are only unpacked and no maintainer script runs, so no emulator is needed;
    busybox replaces all missing programs.
    """
    packages = [*PACKAGES, *more]
    key = key_of([suite, architecture, packages, _SUPERFLUOUS])[:12]

    def make(root: Path) -> None:
        with progress.stage(f"root file system of {suite} for {architecture}"):
            _unpack(suite, architecture, packages, root)
            _furnish(root, suite, architecture)

    what = f"creating a root file system of {suite} for {architecture}"
    return _ROOTS.get(f"{suite}-{architecture}-{key}", make, what, progress)


def _unpack(suite: str, architecture: str, packages: list[str], root: Path) -> None:
    command = ["mmdebstrap", f"--architectures={architecture}", "--variant=extract", f"--include={','.join(packages)}"]
    if (_HOOKS / "merged-usr").is_dir():
        command.append(f"--hook-dir={_HOOKS / 'merged-usr'}")
    done = capture([*command, suite, str(root), *_mirror()], timeout_s=_TIMEOUT_S)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith(("E:", "Err:", "W: Failed"))]
        raise VirtualBoardError(
            f"mmdebstrap cannot create a root file system of {suite} for {architecture}",
            why="; ".join(errors[:3]) or done.stderr.strip()[-500:],
            hints=[
                f"check that the mirror can be reached; {MIRROR_VARIABLE} names another",
                f"check that there is a suite {suite!r}, such as bullseye, bookworm and trixie",
            ],
        )


def _mirror() -> list[str]:
    """The mirror for mmdebstrap; if this machine does not run Debian, mmdebstrap's default."""
    if named := os.environ.get(MIRROR_VARIABLE):
        return [named]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    try:
        return capture(command).stdout.split()[:1]
    except OSError:
        return []


def _furnish(root: Path, suite: str, architecture: str) -> None:
    """Do the work of maintainer scripts that sshd and a shell need."""
    for pattern in _SUPERFLUOUS:
        for path in root.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)
    for name in ("proc", "dev", "run", "home", "root", "tmp", "var/empty", "etc/ssh"):
        (root / name).mkdir(parents=True, exist_ok=True)
    try:
        listed = capture(["chroot", str(root), "/bin/busybox", "--list"])
        listed.check_returncode()
    except (OSError, subprocess.CalledProcessError) as error:
        raise VirtualBoardError(f"programs of {suite} for {architecture} do not run here", why=str(error)) from error
    for applet in listed.stdout.split():
        if not any(os.path.lexists(root / folder / applet) for folder in ("bin", "usr/bin", "sbin", "usr/sbin")):
            (root / "bin" / applet).symlink_to("/bin/busybox")


def control_group(name: str) -> Path:
    """The folder of a virtual board's control groups."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (root / "cgroup.procs").exists() and (root / "cgroup.controllers").exists():
            return root / f"edgedeploy-virtual-{name}"
    raise VirtualBoardError(
        "virtual boards with systemd need control groups of version 2",
        why="neither /sys/fs/cgroup nor /sys/fs/cgroup/unified has them",
        hints=["mount them: mkdir /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"],
    )


def forget_control_group(name: str) -> None:
    """Remove the control groups of a virtual board that has ended."""
    with contextlib.suppress(VirtualBoardError):
        folder = control_group(name)
        for each in sorted([folder, *(path for path in folder.rglob("*") if path.is_dir())], reverse=True):
            with contextlib.suppress(OSError):
                each.rmdir()
