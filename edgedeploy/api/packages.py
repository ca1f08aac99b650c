"""Building packages, and their contents."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from edgedeploy.base.extras import require_build
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.building import Built, Plan
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.package.archive import SUFFIX, read_manifest
from edgedeploy.package.manifest import Manifest
from edgedeploy.package.usage import Camera
from edgedeploy.target.resolved import ResolvedBoard, resolve
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import find_source, means_file, note_weights

if TYPE_CHECKING:
    from edgedeploy.target.board import Overrides

AnyBoard: TypeAlias = str | ResolvedBoard
AnyShapes: TypeAlias = Shapes | Sequence[Shapes]
AnyNetwork: TypeAlias = "str | PathLike[str] | Package"


def resolved(board: AnyBoard, overrides: Overrides | None = None) -> ResolvedBoard:
    """A board by its name, by the path of its YAML file, or already resolved."""
    return board if isinstance(board, ResolvedBoard) else resolve(board, overrides or {})


class Package:
    """A network built for a board, in one archive with a self-test.

    Attributes:
        path: the archive.
        built: the result of building it; None if it existed.
    """

    def __init__(self, path: str | PathLike[str], *, plan: Plan | None = None, built: Built | None = None) -> None:
        """Take an archive, which is read when needed."""
        self.path = Path(path)
        self.built = built
        self._plan = plan

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest: model, board, inputs, outputs, how it was checked, and more.

        Raises:
            PackageError: there is no such file, or it is damaged, or not a package.
        """
        return self.built.manifest if self.built else read_manifest(self.path)

    @property
    def name(self) -> str:
        """The network's name."""
        return self.manifest.model

    def __fspath__(self) -> str:
        return fspath(self.path)

    def __repr__(self) -> str:
        return f"<edgedeploy.Package {self.path}>"

    def explain(self) -> dict[str, Any]:
        """How the network was compiled: functions with template, type, tile, threads and work; transposes; removed
        channels; slow operators. A package that was up to date is compiled again for this.

        Raises:
            UnsupportedError: it is only an archive, which does not record this.
        """
        from edgedeploy.compile.output.explain import explain

        if self.built and self.built.compiled:
            return explain(self.built.compiled)
        if self._plan is None:
            raise UnsupportedError(
                f"{self.path} does not record how its functions were built",
                why="this is known only while a network is built",
                hints=["build it here, and call `explain` of the result of `edgedeploy.build`"],
            )
        with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
            built = replace(self._plan, progress=SILENT).build(Path(folder) / self.path.name, checks="none")
            assert built.compiled
            return explain(built.compiled)

    def to_dict(self) -> dict[str, Any]:
        """Its path, size and manifest."""
        return {
            "package": str(self.path),
            "bytes": self.path.stat().st_size,
            "manifest": self.manifest.model_dump(mode="json"),
        }


def build(
    network: str | PathLike[str],
    *,
    board: AnyBoard = "local",
    overrides: Overrides | None = None,
    output: str | PathLike[str] | None = None,
    shapes: AnyShapes | None = None,
    batches: Sequence[int] = (),
    options: ImportOptions = AS_THE_FILE_SAYS,
    quantize: str | PathLike[str] | None = None,
    calibrate: str | PathLike[str] | None = None,
    evaluate: str | PathLike[str] | None = None,
    demo: str | None = None,
    camera: str | None = None,
    tuning_records: str | None = None,
    disabled_passes: Collection[str] = (),
    check: bool = True,
    force: bool = False,
    progress: Progress = SILENT,
) -> Package:
    """Build a network for a board, after comparing its outputs with another program's.

    An up-to-date package is not rebuilt.

    Args:
        network: a name of the zoo, or a network's file.
        overrides: fields that replace those of the board's profile, such as `{"cpu": "cortex-a73"}`.
        output: the archive to write; `dist/BOARD/NETWORK.tar.gz` unless given.
        shapes: shapes of inputs that the file leaves open, by name; several mappings create several entries.
        batches: sizes of the first dimension of every input, each for its own entry.
        options: what else the file leaves open.
        quantize: a folder of images: the network is quantised first, with ranges measured on these.
        calibrate: a folder of images, which judge the choice of layers in half precision.
        evaluate: a folder of labelled images: the package states the accuracy beside that of single precision.
        demo: the demo that defines preprocessing and decoding; the network's own unless given.
        camera: a camera's frames to take as input, such as `640x480:yuv420`.
        tuning_records: a board's name or a folder; `none` for none; the board's own unless given.
        disabled_passes: names of compiler passes to leave out.
        check: whether to compare outputs.
        force: whether to rebuild even if an up-to-date package exists.
    """
    planned = plan(
        fspath(network),
        resolved(board, overrides),
        shapes=shapes,
        batches=batches,
        options=options,
        quantize=Path(quantize) if quantize else None,
        calibrate=Path(calibrate) if calibrate else None,
        evaluate=Path(evaluate) if evaluate else None,
        demo=demo,
        camera=camera,
        tuning=tuning_records,
        disabled_passes=disabled_passes,
        progress=progress,
    )
    place = Path(output) if output else planned.default_output
    built = planned.build(place, checks="all" if check else "none", make_agent=True, reuse=not force)
    return Package(place, plan=planned, built=built)


def plan(
    network: str,
    board: ResolvedBoard,
    *,
    shapes: AnyShapes | None = None,
    batches: Sequence[int] = (),
    options: ImportOptions = AS_THE_FILE_SAYS,
    quantize: Path | None = None,
    calibrate: Path | None = None,
    evaluate: Path | None = None,
    demo: str | None = None,
    camera: str | None = None,
    tuning: str | None = None,
    disabled_passes: Collection[str] = (),
    progress: Progress = SILENT,
) -> Plan:
    """Find everything that a package is built from; arguments are those of `build`.

    Raises:
        InputError: a network to quantise has several shapes, set inputs, or random weights; one for a camera's frames
            has several shapes; or the frames are invalid.
    """
    first, *further = entries_of(shapes)
    frames = Camera.parsed(camera) if camera else None
    if frames and (further or batches):
        raise InputError("a camera needs a network with one shape", why="a package takes frames of one size")
    if quantize:
        if further or batches or options.values or options.weights != "file":
            raise InputError(
                "only networks with one shape and their own weights can be quantised during a build",
                hints=["quantise it with `edgedeploy quantize`, and build the file"],
            )
        from edgedeploy.quantisation.making import find_task, quantised_source

        task = find_task(network, quantize, demo=demo, shapes=first, options=options, progress=progress)
        source = quantised_source(task, progress)
    else:
        source = find_source(network, first, progress, options).with_further(further, batches)
    note_weights(source, options, progress)
    use, judge = find_use(network, demo, frames), None
    if calibrate or evaluate:
        from edgedeploy.quantisation.evaluation import Judge

        judge = Judge(use.part if use else None, calibrate, evaluate)
        judge.identity()  # a folder that is missing is refused before the long work
    return Plan(source, board, use, tuning, disabled_passes, progress, judge)


def entries_of(shapes: AnyShapes | None) -> Sequence[Shapes]:
    """The shapes of each entry; at least one, which may be empty."""
    if shapes is None or isinstance(shapes, Mapping):
        return [shapes or {}]
    return shapes or [{}]


def check_named(network: AnyNetwork) -> None:
    """Refuse a missing network before boards are reached or started.

    Raises:
        PackageError, ModelError: there is no such file, or it is not a package.
        UnknownNameError: the zoo has no such network.
    """
    name = fspath(network)
    if isinstance(network, Package) or name.endswith(SUFFIX):
        read_manifest(Path(name))
    elif not means_file(name):
        MODELS.find(name)


def package_of(
    network: AnyNetwork,
    board: ResolvedBoard,
    *,
    shapes: AnyShapes | None = None,
    batches: Sequence[int] = (),
    options: ImportOptions = AS_THE_FILE_SAYS,
    demo: str | None = None,
    progress: Progress = SILENT,
) -> Package:
    """A package unchanged, or that of a network: up to date in the cache, or newly built.

    Raises:
        InputError: other shapes or values were given for a package.
    """
    if isinstance(network, Package) or fspath(network).endswith(SUFFIX):
        if any(entries_of(shapes)) or batches or demo or options != AS_THE_FILE_SAYS:
            raise InputError("options about a network's file do not go with a package", why="it is built already")
        return network if isinstance(network, Package) else Package(network)
    name = fspath(network)
    require_build(f"{name} cannot be built")
    planned = plan(name, board, shapes=shapes, batches=batches, options=options, demo=demo, progress=progress)
    return Package(planned.prepare().package_path, plan=planned)
