"""Facts about a board, from its agent or, if it has none yet, from its shell."""

from __future__ import annotations

import json
import struct
from typing import Any, Literal

from pydantic import ValidationError

from edgedeploy.base.programs import script
from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.connection import Connection
from edgedeploy.target.elf import elf_machine
from edgedeploy.target.facts import Facts
from edgedeploy.target.triples import architecture_of_elf

# Relative to the home folder on the board; docs/boards.md describes its files.
BASE = ".local/share/edgedeploy"


def probe(connection: Connection) -> Facts:
    """Ask a board for its facts."""
    done = connection.run('cd "$HOME/$1" && exec ./agent facts', BASE)
    by_agent = done.code == 0
    if not by_agent:
        done = connection.run(script(__package__, "probe.sh"))
    try:
        return of_agent(json.loads(done.output)) if by_agent else _of_shell(done.output)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # ValidationError is a ValueError
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise BoardConnectionError(
            f"{connection.address} does not state what it is",
            why=done.messages or why,
            hints=["edgedeploy needs a POSIX shell and /proc on the board"],
        ) from error


def of_agent(answer: dict[str, Any]) -> Facts:
    """The facts that an agent states; ValueError, KeyError or TypeError if they are malformed."""
    stated = answer["elf"]["machine"]  # a number if the shell is not of the agent's own architecture
    same = ("machine", "kernel", "system", "glibc", "cores", "governor", "temperature_c")
    return Facts(
        **{name: answer[name] for name in same},
        hardware=answer["hardware"] or answer["cpu"]["name"],
        elf_class=answer["elf"]["class"],
        elf_machine=elf_machine(int(stated)) if stated.isdecimal() else stated,
        float_abi=answer["elf"]["float_abi"],
        features=answer["cpu"]["features"] or [],
        memory_bytes=answer["memory"]["total_bytes"],
        free_bytes=answer["disk"]["free_bytes"],
        agent=answer["agent"]["build"],
    )


def _of_shell(output: bytes) -> Facts:
    text, empty, elf = output.partition(b"\n\n")
    if not empty:
        raise ValueError("its answer is cut off")
    lines = (line.partition(" ") for line in text.decode(errors="replace").splitlines())
    values = {name: value.strip() or None for name, _, value in lines}
    same: dict[str, Any] = {name: values.get(name) for name in ("kernel", "system", "hardware", "glibc", "governor")}
    elf_class, machine, float_abi = _of_elf(elf)
    return Facts(
        **same,
        machine=values["machine"],
        elf_class=elf_class,
        elf_machine=machine,
        float_abi=float_abi,
        features=sorted((values.get("features") or "").split()),
        cores=_number(values.get("cores")),
        temperature_c=_number(values.get("temperature"), 1e-3),
        memory_bytes=_number(values.get("memory"), 1024),
        free_bytes=_number(values.get("free"), 1024),
    )


def _number(text: str | None, unit: float = 1) -> Any:
    return int(text) * unit if text else None


def _of_elf(head: bytes) -> tuple[Literal[32, 64], str, Literal["hard", "soft"] | None]:
    """Class, machine and float ABI from the header of an ELF file."""
    if len(head) < 52 or head[:4] != b"\x7fELF":
        raise ValueError("its shell is not an ELF file")
    order = "<" if head[5] == 1 else ">"
    (number,) = struct.unpack_from(f"{order}H", head, 18)
    machine = elf_machine(number)
    bits: Literal[32, 64] = 64 if head[4] == 2 else 32
    (flags,) = struct.unpack_from(f"{order}I", head, 48 if bits == 64 else 36)
    architecture = architecture_of_elf(machine)
    return bits, machine, architecture.float_abi_of(flags) if architecture else None
