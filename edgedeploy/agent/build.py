"""Build the agent, libraries for users' own programs (`library.py`), and TVM's OpenCL runtime for Python.

Object files and products are cached under hashes of everything they depend on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgedeploy.agent import recipe, shipped
from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.extras import installed_versions
from edgedeploy.base.files import digest_of
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import ToolchainError
from edgedeploy.target.board import Board, load_board
from edgedeploy.target.toolchain import Driver, archiver, cxx_compiler, run_tool, zig_triple
from edgedeploy.target.triples import ControlBits, FloatAbi, architecture_of
from edgedeploy.version import __version__

# The oldest glibc that the agent supports, unless the board's profile names an older one.
OLDEST_GLIBC = "2.28"
# Whichever toolchain links a board's networks, this one supports every glibc and links the C++ library statically.
DEFAULT_TOOLCHAIN = "zig"

# A checkout's note when it compiles an agent.
_IN_THE_WHEEL = "a wheel has the agents of all profiles built in: make wheel, then pip install dist/edgedeploy-*.whl"

# Headers in the agent's folder, precompiled for all of its own sources; fewer sources compile faster without.
_PRECOMPILED = "precompiled.h"
_WORTH_PRECOMPILING = 4

_AGENTS, _OBJECTS = FolderCache("agents"), FolderCache("agents/objects")


@dataclass(frozen=True)
class Product:
    """A file to build from TVM's runtime and the agent's own sources."""

    name: str  # that of a static library ends in `.a`
    sources: list[Path]
    link_flags: list[str]  # of a static library: merge its objects into one
    units: list[str] | None = None  # names of the recipe's units to link; all if None

    @classmethod
    def executable(cls, name: str, sources: list[Path]) -> Product:
        """A program with all of TVM's runtime."""
        return cls(name, sources, recipe.load_recipe().link_flags)


@dataclass(frozen=True)
class Agent:
    """A built product; `key` is a hash of everything it was built from, which `agent --version` prints as `build`."""

    path: Path
    key: str


@dataclass(frozen=True)
class _Job:
    """One compilation: a C++ text, its flags, and a digest of all that it includes; `own` if it is the agent's."""

    name: str
    text: str
    flags: list[str]
    includes: str
    own: bool = False

    def key(self, compiler: Driver) -> str:
        return key_of([compiler.identity, _versions(), self.flags, self.includes])


def agent_for(board: Board, toolchain: str = DEFAULT_TOOLCHAIN, progress: Progress = SILENT) -> Agent:
    """The agent for a board's triple: shipped with edgedeploy, from the cache, or built."""
    if toolchain == DEFAULT_TOOLCHAIN and (came := _shipped_agent(board)):
        return came
    note = None if shipped.there_are() else _IN_THE_WHEEL
    return build_product(_agent(board), board, toolchain, progress, note)


def built_agent(board: Board) -> Agent | None:
    """The agent for a board's triple if it is shipped with edgedeploy or in the cache."""
    if came := _shipped_agent(board):
        return came
    _, agent = _wanted(_agent(board), board, DEFAULT_TOOLCHAIN)
    return agent if agent.path.is_file() else None


def agents_to_ship(boards: Iterable[Board], progress: Progress = SILENT) -> list[tuple[shipped.Shipped, Path]]:
    """The agents of boards without duplicates, each with its entry for `shipped`."""
    found = {}
    for board in boards:
        agent = build_product(_agent(board), board, progress=progress)
        target, sources = _shipped_target(board), key_of(_own_parts(_agent(board), board))
        entry = shipped.Shipped(
            file=f"agent-{target}-{agent.key[:8]}", target=target, sources=sources, versions=_versions(), key=agent.key
        )
        found[agent.key] = entry, agent.path
    return list(found.values())


def build_product(
    product: Product,
    board: Board,
    toolchain: str = DEFAULT_TOOLCHAIN,
    progress: Progress = SILENT,
    note: str | None = None,
) -> Agent:
    """A product for a board's triple, from the cache or built; progress is told `note` when a build begins."""
    parts = recipe.load_recipe()
    compiler, built = _wanted(product, board, toolchain)

    def make(target: Path) -> None:
        if note:
            progress.note(note)
        flags = [*parts.flags, *parts.own_flags, *_definitions(board)]
        jobs = [*_unit_jobs(parts, product.units), *_own_jobs(product.sources, flags, built.key)]
        if target.suffix == ".a":
            merged = target.with_suffix(".o")
            _make(merged, compiler, jobs, product.link_flags, progress)
            archive = archiver(board.overridden({"toolchain": toolchain})) or ["ar"]
            run_tool([*archive, "rcsD", str(target), str(merged)])
            merged.unlink()
        else:
            _make(target, compiler, jobs, [*compiler.static_options, *product.link_flags], progress)

    what = f"building {product.name} for {board.triple}"
    _AGENTS.get_file(built.path.parent.name, product.name, make, what, progress)
    return built


def build_opencl_library(target: Path, progress: Progress = SILENT) -> None:
    """Build TVM's runtime for OpenCL as a shared library for this machine, next to TVM's own libraries."""
    compiler = cxx_compiler(load_board("local").overridden({"toolchain": "native"}))
    if "ziglang" in compiler.command:
        raise ToolchainError(
            "the runtime for OpenCL needs this machine's own C++ compiler",
            why="exceptions pass between TVM's libraries and this one, and zig links another C++ library than GNU's",
            hints=["apt install g++"],
        )
    parts = recipe.load_recipe()
    libraries = [f"-L{recipe.package_folder(name) / 'lib'}" for name in ("tvm", "tvm_ffi")]
    jobs = list(_own_jobs(recipe.opencl_library_sources(), parts.flags, ""))
    _make(target, compiler, jobs, [*libraries, *parts.opencl_link_flags], progress)


def _make(target: Path, compiler: Driver, jobs: list[_Job], link_flags: list[str], progress: Progress) -> None:
    compiler.check(progress)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-agent-") as folder:
        tree = Path(folder)  # the wheel's sources, with the missing headers where TVM's source tree has them
        shutil.copytree(recipe.package_folder("tvm") / "src" / "runtime", tree / "src" / "runtime")
        shutil.copytree(recipe.COMPAT, tree, dirs_exist_ok=True)
        with progress.steps(f"compile {target.name} for {compiler.triple}", len(jobs)) as advance:

            def compiled(job: _Job) -> Path:
                path = _compile(job, compiler, tree, progress, headers if job.own else None)
                advance()
                return path

            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                headers = pool.submit(_precompiled, [job for job in jobs if job.own], compiler, tree)
                objects = list(pool.map(compiled, jobs))
        own = " (can take zig minutes at first)" if compiler.toolchain == DEFAULT_TOOLCHAIN else ""
        with progress.stage(f"link {target.name} for {compiler.triple}{own}"):
            run_tool([*compiler.command, *map(str, objects), *link_flags, "-o", str(target)])
            target.chmod(0o755)


def sources_with_device(sources: list[Path], board: Board) -> list[Path]:
    """The sources, with those that drive the board's device if it has one."""
    return sources + (recipe.device_sources(board.device) if board.device else [])


def oldest_glibc(board: Board) -> str:
    """The oldest glibc that products for a board must run with: the profile's, but `OLDEST_GLIBC` at most."""
    versions = [version for version in (board.glibc, OLDEST_GLIBC) if version]
    return min(versions, key=lambda version: [int(part) for part in version.split(".")])


def _agent(board: Board) -> Product:
    return Product.executable("agent", sources_with_device(recipe.own_sources(), board))


def _shipped_agent(board: Board) -> Agent | None:
    if board.cross_compiler or board.cross_compiler_options or not shipped.there_are():
        return None
    found = shipped.find(_shipped_target(board), key_of(_own_parts(_agent(board), board)), _versions())
    return Agent(*found) if found else None


def _shipped_target(board: Board) -> str:
    return zig_triple(board.overridden({"glibc": oldest_glibc(board)}))


def _wanted(product: Product, board: Board, toolchain: str) -> tuple[Driver, Agent]:
    """The compiler for a product, and the product's path and key."""
    compiler = cxx_compiler(board.overridden({"toolchain": toolchain, "sysroot": None, "glibc": oldest_glibc(board)}))
    key = key_of({**_own_parts(product, board), "compiler": compiler.identity, "versions": _versions()})
    return compiler, Agent(_AGENTS.path(key[:16]) / product.name, key)


def _versions() -> dict[str, str]:
    """The installed versions of the packages that carry TVM's sources."""
    return installed_versions(("apache-tvm", "apache-tvm-ffi"))


def _definitions(board: Board) -> list[str]:
    """Macros for the agent's own sources that describe the board's architecture."""
    row = architecture_of(board.triple)
    if row.elf_machine is None:
        raise ToolchainError(
            f"no agent can be built for the architecture {row.name}",
            why="the table of triples does not have it",
            hints=["describe it in a file in the folder `triples`: docs/data-files.md"],
        )
    floats, control = row.float_abi or FloatAbi(mask=0, hard=0), row.flush_subnormals or ControlBits(word=0, bits=0)
    values = {
        "ELF_MACHINE": row.elf_machine,
        "ELF_NAME": f'"{row.elf_machine}"',
        "FLOAT_MASK": f"{floats.mask}u",
        "FLOAT_HARD": f"{floats.hard}u",
        "FLUSH_WORD": f"{control.word}",
        "FLUSH_BITS": f"{control.bits}u",
        "INSTRUCTION_POINTER": f"{-1 if row.instruction_pointer is None else row.instruction_pointer}",
    }
    return [f"-DAGENT_{name}={value}" for name, value in values.items()]


def _own_parts(product: Product, board: Board) -> dict[str, Any]:
    """Everything of edgedeploy's own that a product depends on."""
    return {
        "definitions": _definitions(board),
        "edgedeploy": __version__,
        "product": product.name,
        "recipe": recipe.load_recipe().model_dump(mode="json"),
        "sources": digest_of(sorted({*recipe.own_files(), *product.sources}), recipe.AGENT),
    }


def _unit_jobs(parts: recipe.Recipe, names: list[str] | None) -> Iterator[_Job]:
    # TVM's are found in the tree of `_make`.
    roots = {"tvm": Path("src", "runtime"), "tvm_ffi": recipe.package_folder("tvm_ffi") / "src" / "ffi"}
    compat = digest_of(sorted(recipe.COMPAT.glob("**/*.h")), recipe.COMPAT)
    for unit in parts.units:
        if names is None or unit.name in names:
            text = "".join(f'#include "{roots[unit.package] / source}"\n' for source in unit.sources)
            # Paths differ from build to build; the wheels' versions identify their contents.
            yield _Job(unit.name, text, [*parts.flags, *unit.flags], key_of([compat, unit.sources]))


def _own_jobs(sources: list[Path], common_flags: list[str], key: str) -> Iterator[_Job]:
    flags = [*common_flags, "-Wall", "-Wextra"]
    for source in sources:
        facts = {}
        if source.name == "version.cc":
            facts = {"AGENT_VERSION": __version__, "AGENT_TVM": _versions()["apache-tvm"], "AGENT_BUILD": key}
        defined = [f'-D{name}="{value}"' for name, value in facts.items()]
        includes = digest_of([source, *recipe.own_headers()], recipe.AGENT)
        yield _Job(source.name, f'#include "{source}"\n', [*flags, *defined], includes, own=True)


def _compile(job: _Job, compiler: Driver, tree: Path, progress: Progress, headers: Future[list[str]] | None) -> Path:
    """The object file of a job, from the cache or compiled, with the options that `headers` gives."""

    def make(target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="edgedeploy-agent-") as folder:
            text = Path(folder) / f"{Path(job.name).stem}.cc"
            text.write_text(job.text, encoding="utf-8")
            options = [*job.flags, "-c", *(headers.result() if headers else [])]
            _call_compiler(compiler, options, text, target, tree)

    return _OBJECTS.get_file(job.key(compiler), f"{Path(job.name).stem}.o", make, f"compiling {job.name}", progress)


def _precompiled(jobs: list[_Job], compiler: Driver, tree: Path) -> list[str]:
    """Precompile the headers, and give the options to use them; none if that is not worthwhile or not supported.

    Each product precompiles its own: clang refuses a precompiled header whose sources have other paths by then.
    """
    missing = [job for job in jobs if not _OBJECTS.path(job.key(compiler)).is_dir()]
    if compiler.toolchain != DEFAULT_TOOLCHAIN or len(missing) < _WORTH_PRECOMPILING:
        return []
    target = tree / f"{_PRECOMPILED}.pch"
    options = [*missing[0].flags, "-x", "c++-header"]
    _call_compiler(compiler, options, recipe.AGENT / _PRECOMPILED, target, tree)
    return ["-include-pch", str(target)]


def _call_compiler(compiler: Driver, options: list[str], source: Path, target: Path, tree: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="edgedeploy-agent-") as folder:
        ffi = recipe.package_folder("tvm_ffi")
        # Messages of TVM's checks name their file: the same on every machine.
        roots = {source.parent: "", tree: "tvm", ffi: "tvm_ffi", recipe.AGENT: "agent"}
        mapped = [f"-ffile-prefix-map={path}={name}" for path, name in roots.items()]
        folders = [ffi / "include", ffi / "3rdparty" / "dlpack" / "include", recipe.package_folder("tvm") / "include"]
        folders += [tree, tree / "include", tree / "3rdparty" / "compiler-rt", recipe.AGENT]
        included = [f"-I{each}" for each in folders]
        command = [*compiler.command, *options, *mapped, *included, str(source), "-o", str(target)]
        # zig would keep a second copy of each object.
        run_tool(command, environment={"ZIG_LOCAL_CACHE_DIR": folder})
