"""Root file systems of virtual boards: made by mmdebstrap, kept in the user's cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from edgedeploy.errors import VirtualBoardError
from edgedeploy.kept import Kept, key_of
from edgedeploy.progress import SILENT, Progress

# Names the mirror of Debian that packages come from, unless it is that of this machine's own packages. Of the suite's
# archive alone: what a board's userland is should not change with each update.
MIRROR_VARIABLE = "EDGEDEPLOY_DEBIAN_MIRROR"

PACKAGES = (
    *("openssh-server", "openssh-sftp-server", "busybox-static", "libc6", "libc-bin", "util-linux"),
    # What agents read images with.
    *("libjpeg62-turbo", "libpng16-16"),
)

# What no board here needs, and takes most of the room.
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

_ROOTS = Kept("rootfs")


def rootfs(suite: str, architecture: str, progress: Progress = SILENT, more: Sequence[str] = ()) -> Path:
    """The folder with the root file system of a Debian `suite` for an `architecture`, made if it is not there.

    It has the packages that all boards here have, and `more`.

    Only files are unpacked and no maintainer script runs, so that no emulator is needed; busybox stands in for
    all the programs that are not there.
    """
    packages = [*PACKAGES, *more]
    key = key_of([suite, architecture, packages, _SUPERFLUOUS])[:12]

    def make(root: Path) -> None:
        with progress.stage(f"root file system of {suite} for {architecture}"):
            _unpack(suite, architecture, packages, root)
            _furnish(root, suite, architecture)

    what = f"making a root file system of {suite} for {architecture}"
    return _ROOTS.made(f"{suite}-{architecture}-{key}", make, what, progress)


def _unpack(suite: str, architecture: str, packages: list[str], root: Path) -> None:
    command = ["mmdebstrap", f"--architectures={architecture}", "--variant=extract", f"--include={','.join(packages)}"]
    if (_HOOKS / "merged-usr").is_dir():
        command.append(f"--hook-dir={_HOOKS / 'merged-usr'}")
    done = subprocess.run(
        [*command, suite, str(root), *_mirror()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "Err:", "W: Failed"))]
        raise VirtualBoardError(
            f"mmdebstrap cannot make a root file system of {suite} for {architecture}",
            why="; ".join(said[:3]) or done.stderr.strip()[-500:],
            hints=[
                f"look whether the mirror can be reached; {MIRROR_VARIABLE} names another",
                f"look whether there is a suite {suite!r}: bullseye, bookworm and trixie are some",
            ],
        )


def _mirror() -> list[str]:
    """The mirror for mmdebstrap; none where this machine is no Debian: mmdebstrap then takes its own default."""
    if named := os.environ.get(MIRROR_VARIABLE):
        return [named]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    try:
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return said.split()[:1]


def _furnish(root: Path, suite: str, architecture: str) -> None:
    """What maintainer scripts would have done, as far as sshd and a shell need it."""
    for pattern in _SUPERFLUOUS:
        for path in root.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)
    for name in ("proc", "dev", "run", "home", "root", "tmp", "var/empty", "etc/ssh"):
        (root / name).mkdir(parents=True, exist_ok=True)
    try:
        listed = subprocess.run(
            ["chroot", str(root), "/bin/busybox", "--list"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise VirtualBoardError(f"programs of {suite} for {architecture} do not run here", why=str(error)) from error
    for applet in listed.stdout.split():
        if not any(os.path.lexists(root / folder / applet) for folder in ("bin", "usr/bin", "sbin", "usr/sbin")):
            (root / "bin" / applet).symlink_to("/bin/busybox")
