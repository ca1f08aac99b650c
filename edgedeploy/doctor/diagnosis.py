"""All checks, in the order in which they are told."""

from __future__ import annotations

from edgedeploy.doctor import board, host, login, opencl, tools
from edgedeploy.doctor import packages as python
from edgedeploy.doctor.check import Check

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
    tools.predictions,
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
