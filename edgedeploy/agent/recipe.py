"""What the agent is built from: `agent/recipe.yaml`, and the sources and headers of that folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.catalog import builtin_folder
from edgedeploy.devices import Device, kind
from edgedeploy.documents import Record, read_document
from edgedeploy.extras import require_build

RECIPE_NAME = "recipe.yaml"

# Where the sources of a unit lie in the wheel of their package.
_SOURCES = {"tvm_ffi": Path("src/ffi"), "tvm": Path("src/runtime")}


class Unit(Record):
    """Sources of one of TVM's packages that are compiled as one.

    Attributes:
        name: what the unit is called in messages.
        package: the Python package whose wheel carries them.
        flags: of the compiler, beside the recipe's.
        sources: paths in the package's source folder.
    """

    name: str
    package: Literal["tvm_ffi", "tvm"]
    flags: list[str] = []
    sources: Annotated[list[str], Field(min_length=1)]


class LibraryRecipe(Record):
    """What the library for programs of users' own has of the agent, and how it is linked.

    Attributes:
        sources: the agent's own, beside those of the library's folder.
        units: names of units of TVM's sources.
        link_flags: of the shared library, beside the list of its symbols.
        merge_flags: of the one object that the static library is.
    """

    sources: list[str]
    units: list[str]
    link_flags: list[str]
    merge_flags: list[str]


class Recipe(Record):
    """How TVM's sources and the agent's own are compiled and linked.

    Attributes:
        flags: of the compiler.
        own_flags: of the compiler, for the agent's own sources.
        link_flags: of an executable.
        library: the library for programs of users' own.
        opencl_link_flags: of the library that is TVM's runtime for OpenCL in Python.
        units: of TVM's sources.
    """

    flags: list[str]
    own_flags: list[str]
    link_flags: list[str]
    library: LibraryRecipe
    opencl_link_flags: list[str]
    units: list[Unit]


def agent_folder() -> Path:
    """The folder of the agent's own sources."""
    return builtin_folder() / "agent"


def load_recipe() -> Recipe:
    """The recipe that comes with edgedeploy."""
    return read_document(agent_folder() / RECIPE_NAME, Recipe)


def own_sources() -> list[Path]:
    """The agent's own sources, sorted; a release that is followed is the library's."""
    folders = ("camera", "demo", "images")
    files = [path for name in folders for path in agent_folder().glob(f"{name}/*.cc")]
    return sorted([*agent_folder().glob("*.cc"), *vision_sources(), *files, library_folder() / "network.cc"])


def vision_sources() -> list[Path]:
    """The sources that agent and library make results of images with, sorted."""
    return sorted(agent_folder().glob("vision/*.cc"))


def device_sources(device: Device | type[Device]) -> list[Path]:
    """What the agents of boards with a device have beside that, sorted."""
    return sorted(agent_folder().glob(f"{device.agent_sources}/*.cc")) if device.agent_sources else []


def opencl_library_sources() -> list[Path]:
    """The sources of the library that is TVM's runtime for OpenCL in Python, sorted."""
    return [*device_sources(kind("opencl")), agent_folder() / "sha256.cc"]


def library_folder() -> Path:
    """The folder of the library's own sources and headers."""
    return agent_folder() / "library"


def library_sources(recipe: Recipe) -> list[Path]:
    """The sources of the library for programs of users' own, sorted."""
    agents = (agent_folder() / name for name in recipe.library.sources)
    return sorted([*library_folder().glob("*.cc"), *agents, *vision_sources()])


def own_headers() -> list[Path]:
    """All headers of the agent's folder, sorted."""
    return sorted(agent_folder().glob("**/*.h"))


def own_files() -> list[Path]:
    """Everything in the agent's folder that every build depends on, sorted."""
    return sorted([*own_sources(), *own_headers(), library_folder() / "symbols.map", agent_folder() / RECIPE_NAME])


def compat_folder() -> Path:
    """The headers that TVM's wheels leave out, in the layout of TVM's source tree."""
    return agent_folder() / "compat"


def package_folder(package: str) -> Path:
    """Where an installed Python package lies; it is not imported.

    Raises:
        NotInstalledError: TVM is not installed.
    """
    require_build("the agent cannot be built")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def source_folder(package: str) -> Path:
    """The C++ sources that the wheel of `tvm` or `tvm_ffi` carries."""
    return package_folder(package) / _SOURCES[package]
