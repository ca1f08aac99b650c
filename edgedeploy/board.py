"""Board profiles: what a board is, as far as building and running a network needs to know.

A setting is taken from the first of these that states it: the command line, the board profile, what was
probed on the board, the default. `cpu: native` and `cores: native` stand for "probe": `load_board` fills
them in from this machine.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.hosts import host_facts

Positive = Annotated[int, Field(gt=0)]


class Vector(Record):
    """The vector unit: register width in bits, and how many registers instructions can name."""

    bits: Literal[64, 128, 256, 512]
    registers: Positive


class Fma(Record):
    """Fused multiply-add of full vectors of float32: latency in cycles, and how many start per cycle."""

    latency: Positive
    per_cycle: Annotated[float, Field(gt=0)]


class Cache(Record):
    """Data caches in KiB: first level per core, and the last level before memory that is quick to reach."""

    l1_kib: Positive
    l2_kib: Positive


class Ssh(Record):
    """Where the board is reached unless the command line says otherwise."""

    host: str
    user: str
    port: Annotated[int, Field(gt=0, lt=65536)] = 22


class OpenCL(Record):
    """The OpenCL device that networks run on: a part of its name, and TVM's tag of its kind."""

    device: str
    kind: Literal["intel", "mali", "adreno", "generic"] = "generic"


class Board(Record):
    """One board profile.

    Attributes:
        description: one line for people.
        triple: the four-part triple that LLVM generates code for.
        cpu: LLVM's name of the CPU (`mcpu`).
        features: LLVM's feature flags (`mattr`), such as `+neon`.
        float_abi: how floats are passed; only 32-bit ARM has a choice.
        cores: how many threads a network uses by default.
        vector, fma, cache: what the schedule templates size their tiles by.
        toolchain: the toolchain that links the board's code.
        glibc: the oldest glibc that the board's system may have.
        ssh: where the board is reached, absent for this machine.
        opencl: the device that networks run on, absent where they run on the CPU.
    """

    description: str
    triple: str
    cpu: str
    features: list[Annotated[str, Field(pattern=r"^[+-]")]] = []
    float_abi: Literal["hard", "soft"] | None = None
    cores: Positive
    vector: Vector
    fma: Fma
    cache: Cache
    toolchain: str
    glibc: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = None
    ssh: Ssh | None = None
    opencl: OpenCL | None = None

    @model_validator(mode="before")
    @classmethod
    def _probe_native_fields(cls, fields: Any) -> Any:
        """Replace `native` by what this machine has; `native` may stand for any of `host_facts`' fields."""
        if not isinstance(fields, dict) or "native" not in fields.values():
            return fields
        facts = host_facts()
        return {name: facts.get(name, value) if value == "native" else value for name, value in fields.items()}

    @model_validator(mode="after")
    def _triple_has_four_parts(self) -> Board:
        if self.triple.count("-") != 3:
            raise ValueError(
                f"triple {self.triple!r} must have four parts, as aarch64-unknown-linux-gnu has: "
                "with three, LLVM misses the float ABI"
            )
        return self

    @property
    def architecture(self) -> str:
        """The first part of the triple."""
        return self.triple.split("-", 1)[0]

    @property
    def runs_here(self) -> bool:
        """Whether this machine is the board: a profile without SSH."""
        return self.ssh is None

    def cpu_target(self) -> dict[str, Any]:
        """TVM's target for the board's CPU, as the dictionary that `tvm.target.Target` takes."""
        target: dict[str, Any] = {
            "kind": "llvm",
            "mtriple": self.triple,
            "mcpu": self.cpu,
            "num-cores": self.cores,
        }
        if self.features:
            target["mattr"] = list(self.features)
        if self.float_abi:
            target["mfloat-abi"] = self.float_abi
        return target

    def target(self) -> dict[str, Any]:
        """TVM's target for the device that networks run on: the OpenCL device if there is one, else the CPU."""
        if self.opencl is None:
            return self.cpu_target()
        target: dict[str, Any] = {"kind": "opencl", "host": self.cpu_target()}
        if self.opencl.kind != "generic":
            target["device"] = self.opencl.kind
        return target


BOARDS = Catalog("board", "boards", Board, listing="edgedeploy boards")


def load_board(name: str) -> Board:
    """The profile of board `name`, a name or a path to a YAML file.

    Raises:
        UnknownNameError: there is no such board; names that are near are listed.
        ConfigurationError: the file breaks the schema.
    """
    return BOARDS.load(name)
