"""OpenCL, here and on boards: registered drivers, the nodes that they open, and the devices that programs find."""

from __future__ import annotations

import shlex
import tempfile
from collections import defaultdict
from pathlib import Path

from edgedeploy.base.programs import script
from edgedeploy.doctor.case import Case
from edgedeploy.doctor.check import Finding, State, check, not_applicable, ok
from edgedeploy.doctor.host import compiled
from edgedeploy.doctor.running import end_of, run_program
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.place import Place
from edgedeploy.target.board import Board
from edgedeploy.target.opencl import device as opencl
from edgedeploy.target.opencl.profile import opencl_of
from edgedeploy.target.toolchain import link_program

# Prefix of the paths of nodes, for tests.
ROOT = ""

# Debian's package with the driver for a kind of device, and the nodes in /dev that drivers open.
_PACKAGES = {"intel": "intel-opencl-icd", "generic": "pocl-opencl-icd"}
_NODES = {"intel": "/dev/dri/renderD", "mali": "/dev/mali", "adreno": "/dev/kgsl"}


def _concerns(case: Case) -> bool:
    return opencl_of(case.board) is not None or case.is_here


def _bad(case: Case, found: str, *hints: str) -> Finding:
    """A fault; `failed` only for boards that run networks on OpenCL."""
    return Finding(State.FAILED if opencl_of(case.board) else State.WARNING, found, hints)


def _where(case: Case) -> str:
    return "" if case.is_here else "on the board: "


def _install(case: Case) -> str:
    device = opencl_of(case.board)
    kind = device.kind if device else "generic"
    if kind in _PACKAGES:
        return f"{_where(case)}sudo apt install {_PACKAGES[kind]}"
    return f"{_where(case)}install the OpenCL driver of the board's vendor, and a file in /etc/OpenCL/vendors naming it"


def _files(case: Case) -> dict[str, list[list[str]]]:
    """The lines of `opencl_files.sh`: the fields after the first one, by the first one."""
    files: dict[str, list[list[str]]] = defaultdict(list)
    listed = case.place.run(f"root={shlex.quote(ROOT)}\n" + script(__package__, "opencl_files.sh"))
    for line in listed.text.splitlines():
        kind, *fields = line.split("|")
        files[kind].append(fields)
    return files


@check("ICD files", "OpenCL", needs=("login",), applies=_concerns)
def icd_files(case: Case) -> Finding:
    """Whether a driver is registered with libOpenCL."""
    files = _files(case)
    folder = (files["vendors"] or [["/etc/OpenCL/vendors"]])[0][0]
    if drivers := files["driver"]:
        return ok(", ".join(f"{path} names {library}" for path, library in drivers))
    if opencl_of(case.board) is None:
        return not_applicable(f"none in {folder}; {case.name} needs none: it runs networks on the CPU")
    return _bad(case, f"none in {folder}: no OpenCL driver is installed", _install(case))


@check("GPU nodes", "OpenCL", needs=("ICD files",), applies=_concerns)
def gpu_nodes(case: Case) -> Finding:
    """Whether the user may open the nodes in /dev that drivers of GPUs open."""
    files = _files(case)
    user, nodes = (files["user"] or [["$USER"]])[0][0], files["node"]
    device = opencl_of(case.board)
    # A device that the user chose may be of another kind than the profile's.
    wanted = _NODES.get(device.kind) if device and not files["device"] else None
    if wanted and not any(path.startswith(wanted) for path, _, _ in nodes):
        hint = f"{_where(case)}check that the kernel knows the GPU: sudo dmesg | grep -i -e drm -e gpu"
        return _bad(case, f"no {wanted}* found", hint)
    if not nodes:
        return not_applicable("none found; drivers for CPUs need none")
    closed = [(path, group) for path, group, access in nodes if access != "yes"]
    if closed:
        hints = [f"{_where(case)}sudo usermod -aG {group} {user}, and log in again" for _, group in closed]
        paths = ", ".join(f"{path} (group {group})" for path, group in closed)
        return _bad(case, f"{user} may not open {paths}", *dict.fromkeys(hints))
    return ok(f"{user} may open {', '.join(path for path, _, _ in nodes)}")


@check("devices", "OpenCL", needs=("ICD files", "toolchain"), applies=_concerns, limit_s=28)
def devices(case: Case) -> Finding:
    """The devices that a C program finds, built with the board's toolchain, since drivers hang and crash."""
    program = case.folder / "opencl-devices"
    with opencl.listing_source() as source:
        built = compiled(case, source, program)
    if built.state is not State.OK:
        return built
    done = run_program(case.place, program, limit_s=opencl.LIST_S)
    if done.code == opencl.NO_LIBRARY:
        return _bad(case, f"no libOpenCL: {done.messages}", f"{_where(case)}sudo apt install ocl-icd-libopencl1")
    if done.code == opencl.NO_PLATFORMS:
        return _bad(case, f"no driver can be loaded: {done.messages}", _install(case))
    found = opencl.parse(done.text)
    listed = "\n".join(each.line() for each in found)
    if done.code != 0:
        what = f"a driver crashes or hangs: {end_of(done)}" + (f"; before that: {listed}" if listed else "")
        return _bad(case, what, f"{_where(case)}update the driver, or remove its file from /etc/OpenCL/vendors")
    if not found:
        return _bad(case, "the drivers know no device", _install(case))
    device = opencl_of(case.board)
    part = (_files(case)["device"] or [[device.name]])[0][0] if device else ""
    if device and not opencl.named(part, found):
        who, other = "the profile", f"name another device in the profile: `devices` of {case.name}"
        if part != device.name:
            who, other = opencl.DEVICE_VARIABLE, f"unset {opencl.DEVICE_VARIABLE}, or set it to a part of a name"
        what = f"no device has {part!r} in its name, as {who} says; {listed}"
        return _bad(case, what, other, f"or {_install(case)}")
    unusable = [each.name for each in found if not (each.available and each.has_compiler)]
    if unusable:
        return _bad(case, f"{', '.join(unusable)} cannot be used or has no compiler; {listed}", _install(case))
    return ok(listed, devices=[each.model_dump() for each in found])


def devices_on(connection: Connection, board: Board) -> list[opencl.Device]:
    """The devices of a board over SSH; none if its OpenCL does not work, which the checks above explain."""
    with opencl.listing_source() as source, tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        program = Path(folder) / "opencl-devices"
        link_program(source, program, board)
        done = run_program(Place(connection), program, limit_s=opencl.LIST_S)
    return opencl.parse(done.text) if done.code == 0 else []
