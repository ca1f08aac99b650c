"""Board profiles: the properties of a board that building and running a network depend on.

`cpu: native` and `cores: native` are taken from this machine when a profile is read. `Overrides` from the command line
have the same fields and schema. `resolved.py` joins both with probed facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from edgedeploy.base.catalog import Catalog
from edgedeploy.base.documents import Record, faults
from edgedeploy.errors import InputError
from edgedeploy.target.devices import AnyDevice, Device
from edgedeploy.target.hosts import host_facts
from edgedeploy.target.triples import Fma, Positive, Vector, architecture_of

Filled = TypeVar("Filled", bound=Record)

# The default time limit of a health check.
HEALTH_CHECK_S = 60

# On its way to the board, a command is an argument of another one, of at most 128 KiB.
_LONGEST_COMMAND = 10_000


def check_command(text: str) -> str:
    """Check a POSIX shell command; a ValueError if it is empty, too long, or contains a NUL."""
    if not text.strip() or "\0" in text:
        raise ValueError("a command needs at least one word, and may not contain a NUL")
    if len(text) > _LONGEST_COMMAND:
        raise ValueError(f"a command may have at most {_LONGEST_COMMAND} characters: put longer ones into a script")
    return text


# Fields of a profile, by name, that replace its file's.
Overrides = Mapping[str, Any]
NO_OVERRIDES: Overrides = {}


class Cache(Record):
    """Data caches in KiB: first level per core, and the last level before memory that is quick to reach."""

    l1_kib: Positive
    l2_kib: Positive


# Of the model that predicts the cycles of a core.
Cycles = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class L1(Record):
    """The first level of data cache; its size is the profile's."""

    ways: Positive


class Costs(Record):
    """Cycles per 64-byte line from a level of memory, beyond those hidden by arithmetic."""

    foreseen: Cycles  # of a load that a prefetcher predicts
    random: Cycles  # of another load
    store: Cycles


class L2(Costs):
    """The second level of cache, whose size is the profile's; `shared` among all cores or not."""

    ways: Positive
    shared: bool


class L3(L2):
    """A third level of cache; `kib` is one core's share of it."""

    kib: Positive


class Memory(Costs):
    """The memory behind all caches."""

    written_back: Cycles  # the cost of a line that is written back from the caches
    gb_per_s: Annotated[float, Field(gt=0)]  # of all cores together, reads and writes


class CoreModel(Record):
    """The model that predicts a core's cycles: LLVM's model of it, and the cost of memory accesses.

    Only cores for which published times confirm it have one.
    """

    llvm: str  # llvm-mca's name of the model that stands for the core (`-mcpu`)
    clock_mhz: Positive
    # The difference of predictions from published times, as a fraction of these; docs/predictions.md. Networks that
    # multiply integers, and several threads, have their own.
    error: Fraction
    integer_error: Fraction
    threads_error: Fraction
    byte_products: Annotated[float, Field(gt=0)]  # products of bytes per cycle at most
    branch: Cycles  # cycles of the end of a loop that the branch predictor does not foresee
    l1: L1
    l2: L2
    l3: L3 | None = None
    memory: Memory


class Ssh(Record):
    """Where a board is reached by default."""

    host: str
    user: str
    port: Annotated[int, Field(gt=0, lt=65536)] = 22


class Board(Record):
    """One board profile; docs/data-files.md describes its fields."""

    description: str
    triple: str
    cpu: str
    features: list[Annotated[str, Field(pattern=r"^[+-]")]] = []
    float_abi: Literal["hard", "soft"] | None = None
    cores: Positive = 1
    vector: Vector
    fma: Fma
    cache: Cache
    core_model: CoreModel | None = None
    toolchain: str
    cross_compiler: list[str] = []
    cross_compiler_options: list[str] = []
    sysroot: Annotated[Path, AfterValidator(lambda path: path.expanduser().resolve())] | None = None
    glibc: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    ssh: Ssh | None = None
    devices: Annotated[list[AnyDevice], Field(max_length=1)] = []
    precision: Literal["single", "half", "auto"] | None = None
    health_check: Annotated[str, AfterValidator(check_command)] | None = None
    health_check_s: Annotated[int, Field(gt=0, le=86400)] = HEALTH_CHECK_S
    max_accuracy_loss: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _probe_native_fields(cls, fields: Any) -> Any:
        """Replace `native` by what this machine has; `native` may stand for any of `host_facts`' fields."""
        if not isinstance(fields, dict) or "native" not in fields.values():
            return fields
        facts = host_facts()
        return {name: facts.get(name, value) if value == "native" else value for name, value in fields.items()}

    @model_validator(mode="before")
    @classmethod
    def _has_no_old_fields(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "opencl" in fields:
            raise ValueError("`opencl: {device: NAME, ...}` is written `devices: [{backend: opencl, name: NAME, ...}]`")
        return fields

    @field_validator("triple")
    @classmethod
    def _with_vendor(cls, value: str) -> str:
        """Add the vendor to `aarch64-linux-gnu`, as GCC writes it: without one, LLVM misses the float ABI."""
        parts = value.split("-")
        return "-".join([parts[0], "unknown", *parts[1:]]) if len(parts) == 3 and parts[1] == "linux" else value

    @model_validator(mode="after")
    def _triple_is_whole(self) -> Board:
        if self.triple.count("-") != 3 or not all(self.triple.split("-")):
            raise ValueError(
                f"triple {self.triple!r} is not of the form ARCHITECTURE-VENDOR-SYSTEM-ABI, such as "
                "aarch64-unknown-linux-gnu, or ARCHITECTURE-linux-ABI"
            )
        if self.float_abi and self.float_abi != ("hard" if self.triple.endswith("hf") else "soft"):
            raise ValueError(f"triple {self.triple!r} does not have the {self.float_abi}-float ABI")
        return self

    @property
    def is_x86(self) -> bool:
        """Whether it is an x86 machine, 32-bit or 64-bit."""
        return architecture_of(self.triple).memory_operands

    @property
    def in_order(self) -> bool:
        """Whether its core is known to execute instructions in order."""
        return any(core.in_order for core in architecture_of(self.triple).cpus if core.name == self.cpu)

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-", 1)[0]

    @property
    def family(self) -> str:
        """The architecture's canonical name; tools may use others."""
        return architecture_of(self.triple).name

    @property
    def runs_here(self) -> bool:
        """Whether this machine is the board: a profile without SSH."""
        return self.ssh is None

    @property
    def device(self) -> Device | None:
        """The device that networks run on besides the CPU, if any."""
        return self.devices[0] if self.devices else None

    @property
    def accelerator(self) -> Device | None:
        """The device, if it has its own runtime and memory."""
        return self.device if self.device and self.device.runtime else None

    def overridden(self, overrides: Overrides) -> Board:
        """This board with some fields replaced; `device` stands for fields of the device, as a mapping.

        Another toolchain drops this one's compiler options; another CPU gets its own vectors from the table of triples.
        """
        fields = self.model_dump(exclude_unset=True)
        if "toolchain" in overrides:
            fields |= {"cross_compiler": [], "cross_compiler_options": []}
        stated = dict(overrides)
        if "cpu" in stated and "vector" not in stated:
            fields["vector"] = (architecture_of(self.triple).vector_of(stated["cpu"]) or self.vector).model_dump()
        if part := stated.pop("device", None):
            if not self.devices:
                raise InputError(
                    "the board has no device to choose",
                    why="its networks run on the CPU: the profile states no `devices`",
                    hints=["name a board that has one: local-opencl, nuc-opencl"],
                )
            stated["devices"] = [{**fields["devices"][0], **part}]
        try:
            board = Board.model_validate({**fields, **stated})
        except ValidationError as error:
            keys, _, why = next(faults(error))
            name = str(keys[0]) if keys else "triple"
            raise InputError(f"{overrides.get(name)!r} cannot be the board's {name}", why=why) from error
        if board.family != self.family:
            raise InputError(
                f"{board.triple!r} cannot be the board's triple",
                why=f"the board is {self.family}, as its profile says: {self.triple}",
                hints=["name a board of that architecture: `edgedeploy boards`"],
            )
        return board

    def cpu_target(self) -> dict[str, Any]:
        """TVM's target for the board's CPU, as the dictionary that `tvm.target.Target` takes."""
        target: dict[str, Any] = {
            "kind": "llvm",
            "mtriple": self.triple,
            "mcpu": self.cpu,
            "num-cores": self.cores,
            **architecture_of(self.triple).target,
        }
        if self.features:
            target["mattr"] = list(self.features)
        if self.float_abi:
            target["mfloat-abi"] = self.float_abi
        return target

    def target(self) -> dict[str, Any]:
        """TVM's target for the device if there is one, else for the CPU."""
        return self.device.target(self.cpu_target()) if self.device else self.cpu_target()


BOARDS = Catalog("board", "boards", Board, listing="edgedeploy boards")


def load_board(name: str) -> Board:
    """The profile of board `name`, a name or a path to a YAML file, without overrides and probed facts."""
    return BOARDS.load(name)


def filled(record: Filled, known: Mapping[str, Any]) -> Filled:
    """A record with known values for the fields that it does not state."""
    missing = {name: value for name, value in known.items() if name not in record.model_fields_set}
    return record.model_copy(update=missing)
