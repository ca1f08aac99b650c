"""All checks, and what they make of a board."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.doctor import board, host, login, opencl, tools
from edgedeploy.doctor import packages as python
from edgedeploy.doctor.case import case_of
from edgedeploy.doctor.check import Check, Result
from edgedeploy.doctor.examination import LIMIT_S, examine
from edgedeploy.progress import SILENT, Progress
from edgedeploy.resolved import ResolvedBoard

CHECKS: tuple[Check, ...] = (
    host.system,
    python.packages,
    python.extras,
    host.tvm,
    tools.toolchain,
    tools.program,
    tools.other_toolchains,
    tools.cmake,
    tools.virtual_boards,
    host.folders,
    host.networks,
    host.tracker_ports,
    login.address,
    login.ssh_server,
    login.host_key,
    login.login,
    board.architecture,
    board.glibc,
    board.releases,
    board.needed_programs,
    board.forwarding,
    board.program_there,
    board.agent,
    board.state,
    opencl.icd_files,
    opencl.gpu_nodes,
    opencl.devices,
)


def diagnose(
    examined: ResolvedBoard,
    hosts: Sequence[str] = (),
    *,
    virtual: bool = False,
    strict: bool = False,
    limit_s: float = LIMIT_S,
    progress: Progress = SILENT,
) -> list[Result]:
    """Examine a board, and this machine as what builds for it.

    Args:
        examined: the board.
        hosts: where it is, if not where its profile says.
        virtual: examine its virtual one, which is started if need be, before the time counts.
        strict: refuse a host key that is not known.
        limit_s: the time for all checks.
        progress: is told of each check that is done.

    Raises:
        InputError: there is no such address.
    """
    with case_of(examined, hosts, virtual=virtual, strict=strict, progress=progress) as case:
        return examine(case, CHECKS, limit_s=limit_s, progress=progress)
