"""The manifest of a package: its members, its origin, and its requirements, with all rules of a valid manifest.

The agent's reader (`agent/manifest.cc`) has the same rules for the part that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, field_validator, model_validator

from edgedeploy.base.documents import Listed, Record, first_fault, parse_json, whole
from edgedeploy.errors import UnsupportedError
from edgedeploy.model.heads import Head
from edgedeploy.model.quantised import Half, Quantisation
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.entry import Case, Entry, MemberName, SelfTest, TailMember, Tensors, bytes_of
from edgedeploy.package.usage import Usage, depth

MANIFEST_NAME = "manifest.json"
LIBRARY_NAME = "model.so"
TAIL_NAME = "tail.json"
# The version of the manifest's structure; the agent reads the same one (agent/manifest.cc).
FORMAT: Literal[1] = 1
# The library's function that transforms the members in `Manifest.transformed` for its entries.
TRANSFORM = "transform_weights"
# The program that runs packages on a board, next to the package's files.
AGENT_NAME = "agent"

# A manifest is a few kB; a network of a board rarely exceeds 250 MB. Members are read into memory.
MAXIMUM_MANIFEST = 1 << 20
MAXIMUM_CONTENT = 1 << 30
MAXIMUM_ENTRIES = 32
# No board has more processors.
MAXIMUM_THREADS = 1 << 16

# All names, each with a SHA-256, are in one command on the board, for which Linux allows 128 KiB.
MAXIMUM_COMMAND = 100_000

# TVM's targets contain the host's target, which contains lists.
_DEEPEST_TARGET = 4

# A model's name is also that of its package, and of a folder on boards.
MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Member(Record):
    """A file of the package: its size in bytes and the SHA-256 of its content."""

    size: Annotated[int, Field(ge=0, le=MAXIMUM_CONTENT)]
    sha256: Sha256


class Abi(Record):
    """What the package's code needs of a machine, from its ELF file."""

    elf_class: Annotated[Literal[32, 64], BeforeValidator(whole)]  # 32 or 64 bits
    machine: str  # ELF's name of the architecture, such as `EM_AARCH64`
    float_abi: Literal["hard", "soft"] | None  # only on 32-bit ARM
    # The newest version that a symbol needs, if any
    glibc: Annotated[str, Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$")] | None
    libraries: Listed[str]
    cpu: str
    features: Listed[str]  # LLVM feature flags beyond that CPU's own


class Memory(Record):
    """The memory of one open network, without its code, inputs and the runtime."""

    # Intermediate tensors and outputs, as planned at build time: those that do not live at the same time share memory.
    # TVM rounds each storage up to a whole page.
    workspace_bytes: Annotated[int, Field(ge=0)]
    scratch_bytes: Annotated[int, Field(ge=0)]  # at most, for each thread, tensors that never leave a function
    constants_bytes: Annotated[int, Field(ge=0)]  # its weights

    def line(self) -> str:
        """The memory in one line for people."""
        return (
            f"{self.workspace_bytes:,} bytes of workspace, {self.constants_bytes:,} of constants, "
            f"up to {self.scratch_bytes:,} of scratch for each thread"
        )


class Check(Record):
    """How a package's code was compared with the reference before the package was written."""

    # `compiled for this machine` is the same network, but not the board's code
    how: Literal["here", "emulated", "compiled for this machine", "no"]
    emulator: str | None = None  # the program that ran the board's code, and its version

    def line(self) -> str:
        """The check in one line for people."""
        return f"{self.how} ({self.emulator})" if self.emulator else self.how


class Manifest(Record):
    """All information about a package."""

    format: Annotated[Literal[1], BeforeValidator(whole)] = FORMAT
    model: Annotated[str, Field(pattern=MODEL_NAME)]
    model_sha256: Sha256  # SHA-256 of the file that describes the network
    # `random` if its weights are seeded random values, for measurements only
    weights: Literal["file", "random"] = "file"
    board: str
    # A hash of everything that the package depends on: equal keys mean equal packages, except `checked`
    build_key: Sha256
    target: dict[str, object]  # TVM's target
    # A part of the name of its device, of the kind of its target; None for the CPU. The agent reads it under its alias.
    device: str | None = Field(None, alias="opencl_device")
    threads: Annotated[int, Field(gt=0, le=MAXIMUM_THREADS)]
    versions: dict[str, str]  # of edgedeploy, TVM, the numerics' reference and packages that add passes
    linker: str
    tuning_records: Sha256 | None = None
    disabled_passes: Listed[str] = []
    # Inputs of the network's file that are constants in the package, with their values
    set_inputs: dict[str, object] = {}
    inputs: Tensors  # of the network, in order
    outputs: Tensors  # of the network, in order; of its compiled part if it has a tail
    tail: TailMember | None = None
    # The same network for other shapes of its inputs; most packages have one shape
    further: Annotated[Listed[Entry], Field(max_length=MAXIMUM_ENTRIES - 1)] = []
    heads: Listed[Head] = []
    metadata: dict[str, str] = {}
    quantisation: Quantisation | None = None  # how it was quantised, and the loss; None for a float network
    half: Half | None = None  # the layers in half precision; None if all are in single
    usage: Usage | None = None  # how images become its input, and its outputs results; None if unknown
    abi: Abi
    memory: Memory
    selftest: SelfTest
    checked: Check
    # Weights that the library transforms when it is loaded, each under the name of its member; its function `TRANSFORM`
    # takes them, and entries take its results after their inputs
    transformed: Tensors = []
    files: dict[MemberName, Member]

    def __repr__(self) -> str:
        return f"<edgedeploy.Manifest {self.model} for {self.board}, {len(self.files)} files>"

    @field_validator("format", mode="before")
    @classmethod
    def _is_read_here(cls, value: object) -> object:
        if isinstance(value, int) and value != FORMAT:
            raise ValueError(f"another version of edgedeploy wrote it: this one reads format {FORMAT}, not {value}")
        return value

    @property
    def entries(self) -> list[Entry]:
        """The entry points of the library: the network for its first shapes, and for others."""
        first = Entry.model_construct(
            function="main", inputs=self.inputs, outputs=self.outputs, tail=self.tail, selftest=self.selftest
        )
        return [first, *self.further]

    @property
    def results(self) -> list[TensorSpec]:
        """The network's outputs: those of its tail, if any."""
        return self.entries[0].results

    def of_entry(self, entry: Entry) -> Manifest:
        """The manifest of one entry alone."""
        alone = {"inputs": entry.inputs, "outputs": entry.outputs, "tail": entry.tail, "selftest": entry.selftest}
        return self.model_copy(update={**alone, "further": []})

    def raised_tolerances(self) -> list[str]:
        """Tolerances of the self-test above the usual ones, with their reasons, in lines for people."""
        half = self.half.tested if self.half and self.half.used else None
        return self.selftest.raised(self.outputs, quantised=self.quantisation is not None, half=half)

    def written(self) -> dict[str, Any]:
        """The content of the file."""
        return self.model_dump(mode="json", by_alias=True)

    @field_validator("target")
    @classmethod
    def _is_flat(cls, target: dict[str, object]) -> dict[str, object]:
        if depth(target) > _DEEPEST_TARGET:
            raise ValueError("it is nested too deeply")
        return target

    @field_validator("files")
    @classmethod
    def _are_files_of_one_folder(cls, files: dict[str, Member]) -> dict[str, Member]:
        taken = {MANIFEST_NAME, AGENT_NAME}
        for name in files:
            folder = name.rpartition("/")[0]
            if name in taken or folder in taken or folder in files:
                raise ValueError(f"there can be no file {name!r} beside the others")
        if sum(len(name) + len("  ") + 64 for name in files) > MAXIMUM_COMMAND:
            raise ValueError(f"it lists {len(files):,} files, more than fit into one command on a board")
        total = sum(member.size for member in files.values())
        if total > MAXIMUM_CONTENT:
            raise ValueError(f"it holds {total:,} bytes, more than the {MAXIMUM_CONTENT:,} that are read")
        return files

    @model_validator(mode="after")
    def _can_be_true(self) -> Manifest:
        entries = self.entries
        for entry in entries:
            if any(not len(c.relative) == len(c.spread) == len(entry.outputs) for c in entry.selftest.cases):
                raise ValueError("the self-test has another number of tolerances than the network has outputs")
        weights = [spec.name for spec in self.transformed]
        missing = {LIBRARY_NAME, *weights}.union(*(entry.members for entry in entries)) - self.files.keys()
        if missing:
            raise ValueError(f"files does not list {', '.join(sorted(missing))}")
        self._check_sizes(self.transformed, weights)
        if len({entry.function for entry in entries}) < len(entries):
            raise ValueError("two entries have one function")
        for entry in entries:
            cases = entry.selftest.cases
            if len({case.name for case in cases}) < len(cases):
                raise ValueError("two cases have one name")
            for case in cases:
                self._check_sizes(entry.inputs, case.inputs)
                self._check_sizes(entry.outputs, case.outputs)
        return self

    def _check_sizes(self, specs: list[TensorSpec], names: list[str]) -> None:
        if len(specs) != len(names):
            raise ValueError("the self-test has another number of tensors than the network")
        for spec, name in zip(specs, names, strict=True):
            if self.files[name].size != bytes_of(spec):
                raise ValueError(f"{name} is not of the size of {spec.name!r}")


_MANIFEST = TypeAdapter(Manifest)


def check_size(size: int) -> None:
    """Refuse a manifest that is too large."""
    if size > MAXIMUM_MANIFEST:
        raise ValueError(f"it has {size:,} bytes, more than the {MAXIMUM_MANIFEST:,} that are read")


def parse_manifest(text: bytes) -> Manifest:
    """Parse a manifest's file, in a JSON that all readers understand in the same way."""
    check_size(len(text))
    return parse_json(text, _MANIFEST)


@contextmanager
def packageable(model: str) -> Iterator[None]:
    """Turn errors of creating a manifest and its parts into an error for the user."""
    try:
        yield
    except ValidationError as error:
        if error.title not in {
            part.__name__ for part in (Manifest, SelfTest, Case, Check, Abi, Memory, Member, TailMember, Entry)
        }:
            raise
        raise UnsupportedError(f"no package can hold {model}", why=first_fault(error)) from error
