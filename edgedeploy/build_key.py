"""The key of a package: SHA-256 over everything that it depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.base.cache import key_of
from edgedeploy.base.extras import installed_versions
from edgedeploy.base.files import digest_of
from edgedeploy.base.plugins import code_of
from edgedeploy.compile.passes import provider_code, provider_versions
from edgedeploy.frontends.format import Format
from edgedeploy.package.usage import Usage
from edgedeploy.target.board import Board
from edgedeploy.target.toolchain import c_compiler
from edgedeploy.version import __version__
from edgedeploy.zoo.source import Source

if TYPE_CHECKING:
    from edgedeploy.package.manifest import Manifest
    from edgedeploy.records.database import Records
    from edgedeploy.target.resolved import ResolvedBoard

# The files and folders of edgedeploy that determine a package's content. Data files are left out: the key has board,
# toolchain and network. A test assigns every module that a build loads to these or to all others.
MAKES_PACKAGES = (
    "base/documents.py",
    "base/tarballs.py",
    "build_key.py",
    "building.py",
    "compile",
    "frontends",
    "model",
    "package",
    "records/best.py",
    "runtime/arrays.py",
    "runtime/subnormals.py",
    "selftest",
    "target",
    "version.py",
    "vision/__init__.py",
    "vision/frames.py",
    "vision/geometry.py",
    "vision/preprocess.py",
    "zoo/entry.py",
    "zoo/source.py",
)

# Fields of a profile that do not affect packages: for people, and about releases.
_NOT_BUILT_BY = {"description", "health_check", "health_check_s", "max_accuracy_loss"}

# Python packages that affect every package, besides those of the network's format.
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy")


def build_key(
    source: Source,
    board: Board,
    records: Records | None = None,
    disabled_passes: Collection[str] = (),
    usage: Usage | None = None,
    judges: Sequence[str] = (),
) -> str:
    """The key of a network's package for a board, tuning records, passes, its use, and what judges half precision."""
    linker = c_compiler(board)
    parts = {
        "name": source.name,
        "model": source.sha256,
        "options": asdict(source.options),
        "shapes": {name: list(shape) for name, shape in source.shapes.items()},
        "further shapes": [{name: list(shape) for name, shape in shapes.items()} for shapes in source.further],
        "board": board.model_dump(mode="json", exclude=_NOT_BUILT_BY),
        "target": board.cpu_target(),
        "linker": [linker.identity, *linker.static_options],
        "versions": versions(source.format),
        "code": code_digest(folder()),
        "other passes": provider_code(),
        "other formats": _code_of_others(source.format),
        "disabled passes": sorted(set(disabled_passes)),
        "usage": usage.model_dump(mode="json") if usage else None,
        "judges": [*judges],
        "tuning": records.bests_sha256 if records else None,
    }
    return key_of(parts)


def differences(
    manifest: Manifest,
    source: Source,
    board: ResolvedBoard,
    records: Records | None = None,
    disabled_passes: Collection[str] = (),
    usage: Usage | None = None,
) -> list[str]:
    """How a package differs from one that would be built, in phrases for people; arguments are `build_key`'s.

    Manifests do not record edgedeploy's own code, and fields of a profile besides the target.
    """
    options, profile = source.options, board.profile
    found = []
    if manifest.model_sha256 != source.sha256[0]:
        found.append(f"it was built from another file than {source.file} is now")
    if manifest.board != board.label:
        found.append(f"it was built for board {manifest.board}")
    target, wanted = manifest.target, profile.target()
    changed = [name for name in sorted({*target, *wanted}) if target.get(name) != wanted.get(name)]
    found += [f"its target's {name} is {target.get(name)}, not {wanted.get(name)}" for name in changed]
    if manifest.threads != profile.cores:
        found.append(f"it is for {manifest.threads} threads, not {profile.cores}")
    if manifest.weights != options.weights:
        found.append(f"its weights are {'random' if manifest.weights == 'random' else 'those of the file'}")
    if manifest.set_inputs != dict(options.values):
        found.append(f"inputs that are set in it: {manifest.set_inputs or 'none'}")
    shapes = {spec.name: list(spec.shape) for spec in manifest.inputs}
    found += [
        f"its input {name} has shape {shapes[name]}, not {list(shape)}"
        for name, shape in source.shapes.items()
        if name in shapes and shapes[name] != list(shape) and not (manifest.usage and manifest.usage.camera)
    ]
    if len(manifest.further) != len(source.further):
        found.append(f"it has {len(manifest.further) + 1} shapes of inputs, not {len(source.further) + 1}")
    if manifest.disabled_passes != sorted(set(disabled_passes)):
        found.append(f"passes that were left out: {', '.join(manifest.disabled_passes) or 'none'}")
    if manifest.tuning_records != (records.sha256 if records else None):
        found.append("other tuning records" if manifest.tuning_records else "it was built without tuning records")
    linker = c_compiler(profile)
    if manifest.linker != f"{linker.toolchain}: {linker.identity}":
        toolchain = manifest.linker.partition(":")[0]
        how = "another version, or other options" if toolchain == linker.toolchain else f"not by {linker.toolchain}"
        found.append(f"it was linked by toolchain {toolchain}, {how}")
    demos = [None if each is None else (each.demo, each.camera) for each in (manifest.usage, usage)]
    if demos[0] != demos[1] and manifest.usage:
        camera = f", for a camera of {manifest.usage.camera}" if manifest.usage.camera else ""
        found.append(f"it was built for the demo {manifest.usage.demo}{camera}")
    elif usage is not None and manifest.usage != usage:
        found.append("it does not record the use of the network that its zoo entry states")
    for name, version in versions(source.format).items():
        if name in manifest.versions and manifest.versions[name] != version:
            found.append(f"it was built with {name} {manifest.versions[name]}, here is {version}")
    return found or ["it was built by other code of edgedeploy, or with other fields of the board's profile"]


def _code_of_others(form: Format) -> str | None:
    """The code of another package's format, which may change while its version stays."""
    module = type(form).__module__.partition(".")[0]
    return None if module == __name__.partition(".")[0] else code_of(module)


@cache
def versions(form: Format) -> dict[str, str]:
    """The versions of everything that builds a package, including packages with passes.

    Missing Python packages are reported when they are needed.
    """
    return {"edgedeploy": __version__, **installed_versions((*_PACKAGES, *form.packages)), **provider_versions()}


def folder() -> Path:
    """The folder of edgedeploy's code."""
    return Path(__file__).parent


def building_files(root: Path) -> Iterator[Path]:
    """The files below edgedeploy's folder that determine packages, sorted by name."""
    for name in MAKES_PACKAGES:
        path = root / name
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file() and "__pycache__" not in each.parts:
                yield each


@cache
def code_digest(root: Path) -> str:
    """SHA-256 of the code that determines packages, in lower-case hexadecimal."""
    return digest_of(building_files(root), root)
