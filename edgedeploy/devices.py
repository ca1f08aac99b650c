"""The devices that a board may have beside its CPU: what profiles, packages and boards need to know of each kind.

A kind of device is a subclass of `Device`, and a line in `KINDS`. How networks are compiled for it is said by its
backend (`compile/backends/`), how they run by its runtime; both are named here and imported when they are needed, since
most commands need neither.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import PydanticCustomError

from edgedeploy.documents import Record, first_fault

# By the name that profiles state as `backend`, the class of such entries: `module:class`.
KINDS = {"opencl": "edgedeploy.opencl.profile:OpenCL"}


class Device(Record):
    """An entry of a profile's `devices`.

    Attributes:
        backend: its kind; that of TVM's targets for it where it has a runtime.
        name: a part of the name that the device has among its kind.

    Class attributes:
        compiler: the `compile.backend.Backend` for it, as `module:class`.
        runtime: the module whose functions run networks on it (`runtime/opencl.py` has them all); None where the
            functions for it run on the board's CPU, in its memory.
        tolerance: how far outputs may be from the reference's, as `selftest.tolerance` has it; None for the CPU's.
        agent_sources: the folder of the agent's own sources that drive it.
        compiling_s: how long its driver may take to compile the kernels of one function.
        packages: Debian's packages that let virtual boards have it.
        environment: variables that virtual boards set for that.
    """

    backend: str
    name: str = ""

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
        """TVM's target for the device, with that of the CPU beside it."""
        return host

    def found(self, probed: Sequence[Any] | None, registers: int) -> Device:
        """This entry, what it leaves open being as the device itself says.

        Args:
            probed: the `facts.Facts` of boards of the profile, the latest first; None to ask a device of this machine.
            registers: how many vector registers the board's CPU has.
        """
        return self


def kind(name: str) -> type[Device]:
    """The class of a kind of device."""
    found: type[Device] = imported(KINDS[name])
    return found


def imported(path: str) -> Any:
    """What `module:name` stands for."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def runtime_of(backend: str) -> Any:
    """The module that runs networks on a kind of device, which must have one of its own."""
    module = kind(backend).runtime
    assert module is not None
    return importlib.import_module(module)


def _read(entry: object) -> object:
    """An entry of a profile as the class of its kind; faults name the field."""
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
