"""The user's systemd of an empty home folder, in namespaces of its own: real units, timers and signals, no board."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgedeploy.remote.connection import Completed
from support.patience import generous
from support.services import until

SYSTEMD = Path("/lib/systemd/systemd")

# systemd looks for the folder by which it knows that it runs the system; here it is the user's alone. It would take
# itself for the system's if it were the first process.
_BEGIN = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user/0 || exit
export XDG_RUNTIME_DIR=/run/user/0 HOME="$1"
/lib/systemd/systemd --user --log-target=console &
wait
"""


class UserSystemd:
    """A user's systemd that runs.

    Attributes:
        home: the user's home folder.
        runtime: `$XDG_RUNTIME_DIR`, as it is seen from outside.
    """

    def __init__(self, home: Path, pid: int) -> None:
        self.home, self._pid = home, pid
        self.runtime = Path(f"/proc/{pid}/root/run/user/0")

    def run(self, script: str, *arguments: str, content: Iterable[bytes] = (), timeout_s: float = 120) -> Completed:
        """Run a script there, as `Connection.run` does on a board."""
        command = ["nsenter", "-t", str(self._pid), "-m", "-p", "sh", "-c", script, "sh", *arguments]
        done = subprocess.run(
            command,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            input=b"".join(content),
            capture_output=True,
            timeout=generous(timeout_s),
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr.decode(errors="replace").strip())

    def kill(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process by the number that it has there."""
        assert self.run('kill -s "$1" "$2"', number.name.removeprefix("SIG"), str(pid)).code == 0


@contextmanager
def user_systemd(home: Path) -> Iterator[UserSystemd]:
    """Skips the test where there is no systemd, or no right to namespaces."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("nsenter") is None:
        pytest.skip("needs root, systemd and nsenter: apt install systemd util-linux")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _BEGIN, "sh", home]
    environment = {"PATH": os.environ["PATH"]}
    with (
        (home / "systemd.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            until(lambda: children.read_text().split() or process.poll() is not None)
            if process.poll() is not None:
                pytest.skip(f"no namespaces: {(home / 'systemd.log').read_text().strip()}")
            made = UserSystemd(home, int(children.read_text().split()[0]))
            until(lambda: (made.runtime / "systemd" / "private").exists() or process.poll() is not None)
            assert process.poll() is None, (home / "systemd.log").read_text()
            yield made
        finally:
            process.kill()
