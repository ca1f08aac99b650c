"""What an agent on a board says when it cannot do something, as one of our errors."""

from __future__ import annotations

import re

from edgedeploy.errors import EdgedeployError, InputError, OpenCLError, PackageError, ReleaseError

# Exit codes of the agent, which its replies state too, and what they are here.
_ERRORS: dict[int, type[EdgedeployError]] = {7: InputError, 8: PackageError}
OPENCL = OpenCLError.exit_code

# The agent puts the kind of an OpenCL error before its message.
_KIND = re.compile(rf"\b({'|'.join(OpenCLError.kinds())}): ")


def failure(code: int, what: str, said: str) -> EdgedeployError:
    """The error for an agent that failed.

    Args:
        code: its exit code, or the one in its reply.
        what: what it was to do, and where.
        said: its messages, of which each line may begin with its name.
    """
    said = "\n".join(line.removeprefix("agent: ") for line in said.splitlines() if line.strip())
    if code == OPENCL:
        return opencl_failure(what, said) or OpenCLError(what, why=said)
    return _ERRORS.get(code, ReleaseError)(what, why=said)


def opencl_failure(what: str, said: str) -> OpenCLError | None:
    """The error of the kind that a message names; None if it names none of OpenCL's. Arguments are `failure`'s."""
    found = _KIND.search(said)
    return OpenCLError.kinds()[found[1]](what, why=_KIND.sub("", said, count=1)) if found else None
