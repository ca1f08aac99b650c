"""Errors of agents as errors of edgedeploy."""

from __future__ import annotations

import contextlib
import re

import paramiko

from edgedeploy.errors import DeviceError, EdgedeployError, InputError, PackageError, ReleaseError, ending
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.login import BROKEN

_LAST_WORDS_S = 10

# By exit code of the agent, which its replies have too.
_ERRORS: dict[int, type[EdgedeployError]] = {7: InputError, 8: PackageError}
DEVICE = DeviceError.exit_code

# The agent puts the kind of a device's error before its message.
_KIND = re.compile(rf"\b({'|'.join(DeviceError.kinds())}): ")


def failure(code: int, what: str, message: str) -> EdgedeployError:
    """The error `what` for an agent that failed with an exit code, or a reply with one, and messages."""
    message = "\n".join(line.removeprefix("agent: ") for line in message.splitlines() if line.strip())
    if code == DEVICE:
        return device_failure(what, message) or DeviceError(what, why=message)
    return _ERRORS.get(code, ReleaseError)(what, why=message)


def agent_ended(connection: Connection, channel: paramiko.Channel, what: str) -> EdgedeployError:
    """The error for an agent on a board that ended, with message `what`, or for a broken connection."""
    with contextlib.suppress(*BROKEN):
        channel.settimeout(_LAST_WORDS_S)
        message = channel.makefile_stderr("rb").read().decode(errors="replace").strip()
        code = channel.recv_exit_status() if connection.alive else -1
        if connection.alive:
            return failure(code, what, message or ending(code))
    return connection.lost()


def device_failure(what: str, message: str) -> DeviceError | None:
    """The error of the kind that a message names; None if it names none."""
    found = _KIND.search(message)
    return DeviceError.kinds()[found[1]](what, why=_KIND.sub("", message, count=1)) if found else None
