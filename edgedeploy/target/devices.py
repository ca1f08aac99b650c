"""The devices that a board may have besides its CPU: what profiles, packages and boards know of each kind.

A kind of device is a subclass of `Device`, and a line in `KINDS`. Its backend (`compile/backends/`) compiles networks
for it, and its runtime runs them; both are named here and imported when needed, since most commands need neither.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import PydanticCustomError

from edgedeploy.base.documents import Record, first_fault

# The class of an entry, as `module:class`, by its `backend`.
KINDS = {"opencl": "edgedeploy.target.opencl.profile:OpenCL"}


class Device(Record):
    """An entry of a profile's `devices`.

    Class attributes:
        compiler: the `compile.backend.Backend` for it, as `module:class`.
        runtime: the module that runs networks on it (see `runtime/opencl.py`); None if its functions run on the board's
            CPU, in its memory.
        tolerance: relative and absolute tolerance of outputs, as in `selftest.tolerance`; None for the CPU's.
        agent_sources: the folder with the agent's sources that drive it.
        compiling_s: how long its driver may take to compile the kernels of one function.
        packages: Debian packages that give virtual boards the device.
        environment: variables that virtual boards set for it.
    """

    backend: str  # its kind; also that of TVM's targets for it, if it has a runtime
    name: str = ""  # a part of the device's name among its kind
    half: bool = False  # whether it has arithmetic in half precision

    compiler: ClassVar[str]
    runtime: ClassVar[str | None] = None
    tolerance: ClassVar[tuple[float, float] | None] = None
    agent_sources: ClassVar[str | None] = None
    compiling_s: ClassVar[float] = 0
    packages: ClassVar[tuple[str, ...]] = ()
    environment: ClassVar[Mapping[str, str]] = {}

    def model_post_init(self, context: Any) -> None:
        """Count the backend among the fields that are stated, so that a dump of those can be read again."""
        self.__pydantic_fields_set__.add("backend")

    def target(self, host: dict[str, Any]) -> dict[str, Any]:
        """TVM's target for the device, with the CPU's as its host."""
        return host

    def found(self, probed: Sequence[Any] | None, registers: int) -> Device:
        """This entry with open fields filled in by the device itself, on a board whose CPU has `registers` for vectors.

        `probed` are the `facts.Facts` of the profile's boards, the latest first; None to ask a device of this machine.
        """
        return self


def kind(name: str) -> type[Device]:
    """The class of a kind of device; KeyError if it is unknown."""
    found: type[Device] = resolve_name(KINDS[name])
    return found


def runtime_of(backend: str) -> Any:
    """The module that runs networks on a kind of device, which must have its own runtime."""
    module = kind(backend).runtime
    assert module is not None
    return importlib.import_module(module)


def _read(entry: object) -> object:
    """Read an entry of a profile as the class of its kind; faults name the field."""
    if not isinstance(entry, Mapping):
        return entry
    backend = entry.get("backend")
    if backend not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise PydanticCustomError("device", "backend: {found} is none of: {known}", {"found": backend, "known": known})
    try:
        return kind(str(backend)).model_validate(entry)
    except ValidationError as error:
        raise PydanticCustomError("device", "{fault}", {"fault": first_fault(error)}) from error


AnyDevice = Annotated[SerializeAsAny[Device], BeforeValidator(_read)]
