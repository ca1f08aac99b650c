"""What the agent is built from: `agent/recipe.yaml`, and the sources and headers in that folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.base.documents import Record, read_document
from edgedeploy.base.extras import require_build
from edgedeploy.target.devices import Device, kind

# The agent's own sources, and those of the library for users' own programs.
AGENT = builtin_folder() / "agent"
LIBRARY = AGENT / "library"
# The headers that TVM's wheels lack, in the layout of TVM's source tree.
COMPAT = AGENT / "compat"
_RECIPE = AGENT / "recipe.yaml"


class Unit(Record):
    """Sources of a Python package of TVM that are compiled as one translation unit.

    Paths are relative to the package's source folder, flags in addition to the recipe's.
    """

    name: str
    package: Literal["tvm_ffi", "tvm"]
    flags: list[str] = []
    sources: Annotated[list[str], Field(min_length=1)]


class LibraryRecipe(Record):
    """What the library for users' own programs takes from the agent, and how it is linked."""

    sources: list[str]  # the agent's own
    units: list[str]
    link_flags: list[str]  # of the shared library
    merge_flags: list[str]  # link the static library's objects into one


class Recipe(Record):
    """How TVM's sources and the agent's own are compiled and linked; `link_flags` are an executable's."""

    flags: list[str]
    own_flags: list[str]
    link_flags: list[str]
    library: LibraryRecipe
    opencl_link_flags: list[str]
    units: list[Unit]


def load_recipe() -> Recipe:
    """The recipe that comes with edgedeploy."""
    return read_document(_RECIPE, Recipe)


def own_sources() -> list[Path]:
    """The agent's own sources, sorted, with the library's `network.cc`, which follows releases."""
    patterns = ("*.cc", "camera/*.cc", "demo/*.cc", "images/*.cc", "vision/*.cc")
    files = [path for pattern in patterns for path in AGENT.glob(pattern)]
    return sorted([*files, LIBRARY / "network.cc"])


def device_sources(device: Device | type[Device]) -> list[Path]:
    """Further sources of agents for boards with a device, sorted."""
    return sorted(AGENT.glob(f"{device.agent_sources}/*.cc")) if device.agent_sources else []


def opencl_library_sources() -> list[Path]:
    """The sources of TVM's OpenCL runtime for Python."""
    return [*device_sources(kind("opencl")), AGENT / "sha256.cc"]


def library_sources(recipe: Recipe) -> list[Path]:
    """The sources of the library for users' own programs, sorted."""
    agents = (AGENT / name for name in recipe.library.sources)
    return sorted([*LIBRARY.glob("*.cc"), *agents, *AGENT.glob("vision/*.cc")])


def own_headers() -> list[Path]:
    """All headers in the agent's folder, sorted."""
    return sorted(AGENT.glob("**/*.h"))


def own_files() -> list[Path]:
    """All files in the agent's folder that every build depends on, sorted."""
    return sorted([*own_sources(), *own_headers(), LIBRARY / "symbols.map", _RECIPE])


def package_folder(package: str) -> Path:
    """The folder of an installed Python package, which is not imported."""
    require_build("the agent cannot be built")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
