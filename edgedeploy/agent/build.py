"""Builds the agent for a board, once: object files and executables are kept under hashes of all they depend on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgedeploy import __version__
from edgedeploy.agent.recipe import (
    Recipe,
    Unit,
    agent_folder,
    compat_folder,
    digest,
    load_recipe,
    own_files,
    own_sources,
    package_folder,
    source_folder,
)
from edgedeploy.board import Board
from edgedeploy.files import cannot_write, folder_lock, replacing
from edgedeploy.progress import SILENT, Progress
from edgedeploy.toolchain import Driver, cxx_compiler, run_tool

# The oldest system that the agent is built for, unless the board's profile states an older one.
OLDEST_GLIBC = "2.28"
# Whatever links a board's networks, this one knows every glibc and puts the C++ library into the executable.
DEFAULT_TOOLCHAIN = "zig"

COMPILE_TIMEOUT_S = 1800

_QUOTED_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Agent:
    """An agent that was built.

    Attributes:
        path: the executable.
        key: hash of all that it was built from; `agent --version` states it as `build`.
    """

    path: Path
    key: str


@dataclass(frozen=True)
class _Job:
    """One compilation: a C++ text, its flags, and a digest of everything that the text includes."""

    name: str
    text: str
    flags: list[str]
    includes: str


def agent_for(board: Board, toolchain: str = DEFAULT_TOOLCHAIN, progress: Progress = SILENT) -> Agent:
    """The agent for a board's triple: the one that was built before, or a new one.

    Raises:
        ToolchainError: the toolchain is not installed, does not fit the board, or fails.
        OutputError: the user's cache folder cannot be written.
    """
    return build_executable(own_sources(), board, toolchain, progress, name="agent")


def built_agent(board: Board, toolchain: str = DEFAULT_TOOLCHAIN) -> Agent | None:
    """The agent for a board's triple if it was built before.

    Raises:
        ToolchainError: the toolchain is not installed, or does not fit the board.
    """
    _, _, agent = _wanted(own_sources(), board, toolchain, name="agent")
    return agent if agent.path.is_file() else None


def build_executable(
    sources: list[Path], board: Board, toolchain: str, progress: Progress = SILENT, *, name: str
) -> Agent:
    """Build the agent's own `sources` with TVM's runtime into an executable called `name`.

    Raises:
        ToolchainError, OutputError: as `agent_for`.
    """
    compiler, recipe, agent = _wanted(sources, board, toolchain, name=name)
    target = agent.path
    if target.is_file():
        return agent
    try:
        with folder_lock(target.parent, progress):
            if not target.is_file():  # another process may just have built it
                compiler.check(progress)
                _build(sources, compiler, recipe, agent.key, target, board, progress)
    except OSError as error:
        raise cannot_write(target, error) from error
    return agent


def _wanted(sources: list[Path], board: Board, toolchain: str, *, name: str) -> tuple[Driver, Recipe, Agent]:
    """What an executable is built with and from, and where it then lies."""
    recipe = load_recipe()
    compiler = cxx_compiler(board.overridden({"toolchain": toolchain, "sysroot": None, "glibc": _floor(board)}))
    key = _key(sources, compiler, recipe)
    return compiler, recipe, Agent(_cache() / key[:16] / name, key)


def _build(
    sources: list[Path], compiler: Driver, recipe: Recipe, key: str, target: Path, board: Board, progress: Progress
) -> None:
    with replacing(target) as temporary, _runtime_tree() as tree:
        jobs = [*_unit_jobs(recipe, tree), *_own_jobs(sources, recipe, key)]
        with progress.steps(f"{target.name} for {board.triple}", len(jobs) + 1) as advance:

            def compiled(job: _Job) -> Path:
                path = _compile(job, compiler, tree)
                advance()
                return path

            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                objects = list(pool.map(compiled, jobs))
            flags = [*compiler.static_options, *map(str, objects), *recipe.link_flags]
            run_tool([*compiler.command, *flags, "-o", str(temporary)], timeout_s=COMPILE_TIMEOUT_S)
            temporary.chmod(0o755)
            advance()


def _floor(board: Board) -> str:
    """The older of the board's glibc and the one that all agents are built for."""
    versions = [version for version in (board.glibc, OLDEST_GLIBC) if version]
    return min(versions, key=lambda version: [int(part) for part in version.split(".")])


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("edgedeploy")) / "agents"


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")}


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _key(sources: list[Path], compiler: Driver, recipe: Recipe) -> str:
    """SHA-256 over everything that an executable depends on."""
    return _sha256(
        {
            "compiler": compiler.identity,
            "edgedeploy": __version__,
            "recipe": recipe.model_dump(mode="json"),
            "sources": digest(sorted({*own_files(), *sources}), agent_folder()),
            "versions": _versions(),
        }
    )


@contextmanager
def _runtime_tree() -> Iterator[Path]:
    """A copy of the wheel's runtime sources in which the headers that it lacks lie where TVM has them."""
    with tempfile.TemporaryDirectory(prefix="edgedeploy-agent-") as folder:
        tree = Path(folder)
        shutil.copytree(source_folder("tvm"), tree / "src" / "runtime")
        shutil.copytree(compat_folder(), tree, dirs_exist_ok=True)
        yield tree


def _include_flags(tree: Path) -> list[str]:
    ffi = package_folder("tvm_ffi")
    folders = [ffi / "include", ffi / "3rdparty" / "dlpack" / "include", package_folder("tvm") / "include"]
    folders += [tree / "include", tree / "3rdparty" / "compiler-rt", agent_folder()]
    return [f"-I{folder}" for folder in folders]


def _unit_jobs(recipe: Recipe, tree: Path) -> Iterator[_Job]:
    compat = digest(sorted(compat_folder().glob("**/*.h")), compat_folder())
    roots = {"tvm": tree / "src" / "runtime", "tvm_ffi": source_folder("tvm_ffi")}

    def text(unit: Unit) -> str:
        return "".join(f'#include "{roots[unit.package] / source}"\n' for source in unit.sources)

    for unit in recipe.units:
        # Paths differ from build to build; the versions of the wheels say what is in them.
        yield _Job(unit.name, text(unit), [*recipe.flags, *unit.flags], _sha256([compat, unit.sources]))


def _own_jobs(sources: list[Path], recipe: Recipe, key: str) -> Iterator[_Job]:
    warnings = ["-Wall", "-Wextra"]
    for source in sources:
        flags = [*recipe.flags, *warnings]
        if source.name == "version.cc":
            facts = {"AGENT_VERSION": __version__, "AGENT_TVM": _versions()["apache-tvm"], "AGENT_BUILD": key}
            flags += [f'-D{name}="{value}"' for name, value in facts.items()]
        yield _Job(source.name, f'#include "{source}"\n', flags, _included(source))


def _included(source: Path) -> str:
    """Digest of a source of our own with all the headers of ours that it includes, directly or not."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        names = _QUOTED_INCLUDE.findall(path.read_text(encoding="utf-8"))
        waiting += [folder / name for name in names for folder in (path.parent, agent_folder())]
    return digest(sorted(found), agent_folder())


def _compile(job: _Job, compiler: Driver, tree: Path) -> Path:
    """The object file of a job, compiled unless it is in the cache."""
    key = _sha256([compiler.identity, _versions(), job.flags, job.includes])
    target = _cache() / "objects" / f"{key}.o"
    if target.is_file():
        return target
    with replacing(target) as temporary, tempfile.TemporaryDirectory(prefix="edgedeploy-agent-") as folder:
        text = Path(folder) / f"{Path(job.name).stem}.cc"
        text.write_text(job.text, encoding="utf-8")
        # Messages of TVM's checks name their file: with these, the same on every machine.
        roots = {folder: "", str(tree): "tvm", str(package_folder("tvm_ffi")): "tvm_ffi", str(agent_folder()): "agent"}
        mapped = [f"-ffile-prefix-map={path}={name}" for path, name in roots.items()]
        command = [*compiler.command, *job.flags, *mapped, *_include_flags(tree), "-c", str(text), "-o", str(temporary)]
        # zig would keep a second copy of each object.
        run_tool(command, timeout_s=COMPILE_TIMEOUT_S, environment={"ZIG_LOCAL_CACHE_DIR": folder})
    return target
