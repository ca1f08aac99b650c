"""The networks of a benchmark: built by edgedeploy, and written for other engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from edgedeploy.base.attempts import each_attempted
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.benchmarking.engines import OURS, REFERENCES, UNTUNED
from edgedeploy.benchmarking.engines.engine import Engine
from edgedeploy.benchmarking.report import case_of
from edgedeploy.building import Prepared, prepare
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import DownloadError, EdgedeployError, InputError, UnsupportedError, last_line
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.frontends.onnx.inputs import with_own_inputs
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.records.best import NO_RECORDS
from edgedeploy.runtime.arrays import fill
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.source import Source, find_source, means_file

# Of the largest value; sums of another order differ by less, and images that were mixed by more.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Candidate:
    """A network to measure; `batch` and `untuned`, its package without tuning records, are None if not requested."""

    name: str
    prepared: Prepared
    batch: int | None = None
    untuned: Prepared | None = None

    @property
    def case(self) -> str:
        """The name, with the batch."""
        return case_of(self.name, self.batch)

    def package_of(self, engine: Engine) -> Prepared | None:
        """The package that an engine runs, if it is edgedeploy."""
        return {OURS.name: self.prepared, UNTUNED.name: self.untuned}.get(engine.name)

    def tensors(self) -> dict[str, np.ndarray]:
        """Seeded random inputs by name."""
        return {spec.name: fill(spec, "random", seed) for seed, spec in enumerate(self.prepared.manifest.inputs)}

    @property
    def reference(self) -> Engine:
        """The engine whose outputs are taken for right."""
        source = self.prepared.source
        converted = isinstance(source.format, ConvertedFormat)
        engine = REFERENCES.get(".onnx" if converted else source.files[0].suffix)
        if engine is None:
            raise UnsupportedError(
                f"other engines cannot be given {self.name}",
                why=f"networks reach them as ONNX, and {source.format.name} files are not converted to it",
                hints=["measure it as ONNX, or edgedeploy alone with `edgedeploy run --print-time`"],
            )
        return engine

    def write(self, folder: Path) -> Path:
        """Write the network with fixed shapes as ONNX, for every engine the same file; others are taken as they are."""
        source = self.prepared.source
        if not isinstance(source.format, ConvertedFormat):
            assert self.reference
            return source.files[0]
        path = folder / "network.onnx"
        onnx.save(_as_onnx(source), path)
        return path


def candidates(
    models: Sequence[str],
    board: ResolvedBoard,
    shapes: Shapes | None = None,
    progress: Progress = SILENT,
    *,
    options: ImportOptions = AS_THE_FILE_SAYS,
    batches: Sequence[int] = (),
    tuned: str | None = None,
    left_out: Callable[[str, EdgedeployError], None] | None = None,
    failed: dict[str, EdgedeployError] | None = None,
) -> list[Candidate]:
    """Build networks, each once; all are found before the first is built.

    Networks of the zoo whose files are not available, but whose architecture edgedeploy can write, have random weights.

    Args:
        batches: sizes of the first dimension of every input; each network is built for each.
        tuned: tuning records to build with, a folder or a board's name; each network is then built without, too.
        left_out: gets the case and the error of a network that cannot have a batch; if None, the error is raised.
        failed: gets the errors of other networks that cannot be found or built; if None, they are raised.
    """
    find = partial(source_to_measure, shapes=shapes, progress=progress, options=options)
    sources = each_attempted(find, {model: model for model in models}, failed)
    names = [source.name for source in sources.values()]

    def built(model: str) -> list[Candidate]:
        source, found = sources[model], []
        asked = replace(options, weights="random") if source.options.weights == "random" else options
        build = partial(
            prepare, model, board, input_shapes=shapes, options=asked, use=find_use(model), progress=progress
        )
        # Files of one name in two folders go by their paths.
        name = source.name if names.count(source.name) == 1 else model
        for batch in batches or (None,):
            sizes = () if batch is None else (batch,)
            try:
                if sizes:
                    check_batch(source, source.with_further((), sizes))
                prepared = build(batches=sizes, tuning=tuned)
                untuned = build(batches=sizes, tuning=NO_RECORDS) if tuned else None
            except EdgedeployError as error:
                if batch is None or left_out is None:
                    raise
                left_out(case_of(name, batch), error)
                continue
            found.append(Candidate(name, prepared, batch, untuned))
        return found

    found = each_attempted(built, {model: model for model in sources}, failed)
    return [each for of_model in found.values() for each in of_model]


def source_to_measure(model: str, shapes: Shapes | None, progress: Progress, options: ImportOptions) -> Source:
    """As `find_source`; with random weights if the zoo knows the architecture, but its files are not available."""
    if not means_file(model) and (entry := MODELS.load(model)).architecture and not entry.has_weights:
        options = replace(options, weights="random")
    try:
        return find_source(model, shapes, progress, options)
    except DownloadError as error:
        if not MODELS.load(model).architecture:
            raise
        progress.note(f"{model} is measured with random weights: {error.cause}")
        return find_source(model, shapes, progress, replace(options, weights="random"))


def check_batch(alone: Source, together: Source) -> None:
    """Check that the first and the last image of a batch have the same results as alone.

    Exporters write the batch into constants, which are found in most networks, but not in all. Such a network may run
    and mix images.
    """
    single, several = _as_onnx(alone), _as_onnx(together)
    # Floats in [0, 1), and integers of 0 and 1, which are valid indices.
    random, inputs = np.random.default_rng(0), {}
    for value in several.graph.input:
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        inputs[value.name] = (random.random(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)
    before = single.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    after = next(iter(inputs.values())).shape[0]
    try:
        batch = cpu_session(several.SerializeToString()).run(None, inputs)
        session = cpu_session(single.SerializeToString())
        for part in (slice(0, before), slice(after - before, after)):
            images = session.run(None, {name: array[part] for name, array in inputs.items()})
            for output, whole, image in zip(single.graph.output, batch, images, strict=True):
                if whole.shape[1:] != image.shape[1:] or not whole.ndim or len(whole) < part.stop:
                    shapes = f"{list(whole.shape)}, and {list(image.shape)} for one"
                    raise ValueError(f"its output {output.name!r} has no batch: {shapes}")
                found, wanted = (array.astype(np.float64) for array in (whole[part], image))
                allowed = _TOLERANCE * float(np.abs(wanted).max(initial=0.0))
                if not np.allclose(found, wanted, rtol=0, atol=allowed, equal_nan=True):
                    raise ValueError(f"images of a batch change each other's results in its output {output.name!r}")
    except Exception as error:  # onnxruntime's have no common base
        raise InputError(
            f"{together.name} cannot have a batch of {after}",
            why=last_line(error),
            hints=["export it with a batch of that size, or with one that is left open"],
        ) from error


def _as_onnx(source: Source) -> onnx.ModelProto:
    assert isinstance(source.format, ConvertedFormat)
    return with_own_inputs(source.format.convert(source.files, source.shapes, source.options))
