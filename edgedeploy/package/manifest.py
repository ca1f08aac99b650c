"""The manifest of a package: what is in it, what it was made from, and what it needs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from edgedeploy.documents import Record
from edgedeploy.heads import Head
from edgedeploy.runtime.interface import TensorSpec

MANIFEST_NAME = "manifest.json"
LIBRARY_NAME = "model.so"
# The version of the manifest's structure; the agent reads the same one (agent/manifest.cc).
FORMAT: Literal[2] = 2

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# Plain relative names of at most one folder: nothing can point out of the package.
MemberName = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*$")]


class Member(Record):
    """A file of the package: its size in bytes and the SHA-256 of its content."""

    size: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Abi(Record):
    """What a machine must offer for the package's code to run, as its ELF file states it.

    Attributes:
        elf_class: 32 or 64 bits.
        machine: ELF's name of the architecture, such as `EM_AARCH64`.
        float_abi: `hard` or `soft` on 32-bit ARM, else None.
        glibc: the newest version of glibc that a symbol asks for, or None if none asks.
        libraries: the shared libraries that are loaded with it.
        cpu: the CPU that the code was generated for, as LLVM names it.
        features: LLVM feature flags beyond that CPU's own.
    """

    elf_class: Literal[32, 64]
    machine: str
    float_abi: Literal["hard", "soft"] | None
    glibc: Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")] | None
    libraries: list[str]
    cpu: str
    features: list[str]


class Memory(Record):
    """What one network takes of a machine's memory while it is open, beside its code, inputs and the runtime.

    Attributes:
        workspace_bytes: tensors between its functions, and its outputs, as planned at build time: those that do
            not live at the same time share memory. TVM rounds each share up to a whole page.
        scratch_bytes: at most, for each thread, tensors that never leave a function.
        constants_bytes: its weights.
    """

    workspace_bytes: Annotated[int, Field(ge=0)]
    scratch_bytes: Annotated[int, Field(ge=0)]
    constants_bytes: Annotated[int, Field(ge=0)]

    def line(self) -> str:
        """The same in one line for people."""
        return (
            f"{self.workspace_bytes:,} bytes of workspace, {self.constants_bytes:,} of constants, "
            f"up to {self.scratch_bytes:,} of scratch for each thread"
        )


class Case(Record):
    """Inputs, and the outputs that a correct run gives: |difference| <= relative * max|expected| + absolute.

    Attributes:
        name: what the inputs are, such as `random`.
        inputs, outputs: members with the raw little-endian values, in the network's order.
        usual: the relative tolerance of an output that rounding changes little.
        relative: the tolerance, of each output.
        absolute: what comes on top, for outputs that are nearly zero.
        spread: what rounding alone does to each output, as a fraction of its largest value: how far other kernels of
            the reference are from it. None where that is not known.
    """

    name: str
    inputs: list[MemberName]
    outputs: list[MemberName]
    usual: float
    relative: list[float]
    absolute: float
    spread: list[float | None]


class SelfTest(Record):
    """How a package checks itself.

    Attributes:
        cases: each is one inference.
        reference: the program that gave the expected outputs.
        spread_to: its other kernels, for the spread; None where there were none.
    """

    cases: Annotated[list[Case], Field(min_length=1)]
    reference: str
    spread_to: str | None = None

    @property
    def relative(self) -> float:
        """The widest of all relative tolerances."""
        return max(relative for case in self.cases for relative in case.relative)

    def raised(self, outputs: list[TensorSpec]) -> list[str]:
        """What is allowed more than usual, and why, in lines for people."""
        return [
            f"{spec.name} may differ by {relative:g} for {case.name} inputs: {self.spread_to} differs by {spread:g}, "
            "by rounding alone"
            for case in self.cases
            for spec, relative, spread in zip(outputs, case.relative, case.spread, strict=True)
            if relative > case.usual
        ]


class Check(Record):
    """How a package's code was compared with the reference before the package was written.

    Attributes:
        how: `here`, on this machine; `emulated`, the board's code by an emulator; `compiled for this machine`, the same
            network, but not the board's code; or `no`.
        emulator: the program that ran the board's code, and its version.
    """

    how: Literal["here", "emulated", "compiled for this machine", "no"]
    emulator: str | None = None

    def line(self) -> str:
        """The same for people."""
        return f"{self.how} ({self.emulator})" if self.emulator else self.how


class Manifest(Record):
    """Everything that is known about a package.

    Attributes:
        format: version of this structure.
        model: the network's name; also the package's.
        model_sha256: SHA-256 of the file that it was imported from, which describes it.
        weights: `random` if its weights are seeded random values, for measurements only.
        board: name of the board profile.
        build_key: what the package depends on, hashed: equal keys mean an equal package, but for `checked`.
        target: TVM's target.
        opencl_device: a part of the name of the OpenCL device that it runs on; None for the CPU.
        threads: threads it runs with by default.
        versions: of edgedeploy, TVM and the numerics' reference.
        linker: the toolchain that linked the library.
        tuning_records: hash of the tuning records that were used, or None.
        inputs, outputs: of the network, in order.
        heads: what the network's file says of its detection heads.
        abi: what the library needs.
        memory: how much of it a run takes.
        selftest: how the package checks itself.
        checked: how it was checked when it was built.
        files: the members beside this manifest, by name.
    """

    format: Literal[2] = FORMAT
    model: str
    model_sha256: Sha256
    weights: Literal["file", "random"] = "file"
    board: str
    build_key: Sha256
    target: dict[str, object]
    opencl_device: str | None = None
    threads: Annotated[int, Field(gt=0)]
    versions: dict[str, str]
    linker: str
    tuning_records: Sha256 | None = None
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    heads: list[Head] = []
    abi: Abi
    memory: Memory
    selftest: SelfTest
    checked: Check
    files: dict[MemberName, Member]

    @field_validator("format", mode="before")
    @classmethod
    def _is_read_here(cls, value: object) -> object:
        if isinstance(value, int) and value != FORMAT:
            raise ValueError(f"another version of edgedeploy wrote it: this one reads format {FORMAT}, not {value}")
        return value

    @model_validator(mode="after")
    def _can_be_true(self) -> Manifest:
        cases = self.selftest.cases
        counts = (len(self.inputs), *[len(self.outputs)] * 3)
        if any((len(c.inputs), len(c.outputs), len(c.relative), len(c.spread)) != counts for c in cases):
            raise ValueError("the self-test has another number of tensors than the network")
        missing = {LIBRARY_NAME, *(name for case in cases for name in case.inputs + case.outputs)} - self.files.keys()
        if missing:
            raise ValueError(f"files does not list {', '.join(sorted(missing))}")
        for tensor in (*self.inputs, *self.outputs):
            if min(tensor.shape, default=0) < 0:
                raise ValueError(f"the shape of {tensor.name} is {tensor.shape}")
        return self
