"""Quantises a network: calibrates it, compares it, and leaves layers in float if the loss is too large."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

import onnx

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.files import digest_of, replacing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.usage import ImageUse, find_use
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.model.heads import KEY as HEADS
from edgedeploy.model.heads import dumped
from edgedeploy.model.metadata import ENTRY
from edgedeploy.model.quantised import KEY, Method, Quantisation
from edgedeploy.quantisation.agreement import Comparison, LayerNoise, Runs, by_harm, compare, fewest_kept, worst_layers
from edgedeploy.quantisation.equalising import equalised
from edgedeploy.quantisation.evaluation import Evaluation, Score, find_evaluation, unknown_images
from edgedeploy.quantisation.preparing import Prepared, check_same, prepare
from edgedeploy.quantisation.quantising import (
    Layer,
    Ranges,
    calibrate,
    chosen,
    layers_of,
    quantise,
    sharing_ranges,
    without_inner_pairs,
)
from edgedeploy.quantisation.samples import FEW, Samples, find_samples
from edgedeploy.version import __version__
from edgedeploy.zoo.source import Source, find_source

MOST_SAMPLES = 300  # how many images are taken at most
MAX_LOSS = 0.01  # the loss that `--auto` allows
MAX_LOSS_OF_BOXES = 0.03  # the share of boxes that a detector may lose by default


_NETWORKS = FolderCache("quantised")

# The packages whose versions change the quantised network.
_PACKAGES = ("numpy", "onnx", "onnxruntime", "opencv-python-headless")


@dataclass(frozen=True)
class Settings:
    """How a network is quantised."""

    method: Method = "minmax"
    keep: Sequence[str] = ()  # names of layers, or patterns of them, that stay in float
    # Layers stay in float until the loss is at most so much; None for `MAX_LOSS_OF_BOXES`, and 1 for other networks.
    max_loss: float | None = None
    # Whether results are rounded to bytes after every operator, as other engines' kernels need it.
    all_pairs: bool = False
    own_scales: bool = False  # whether each tensor of a concatenation keeps its own scale


@dataclass(frozen=True)
class Task:
    """A network to quantise; `usage` is None for inputs that are arrays."""

    source: Source
    prepared: Prepared
    usage: ImageUse | None
    samples: Samples
    evaluation: Evaluation | None


@dataclass(frozen=True, repr=False)
class Made:
    """A quantised network."""

    model: onnx.ModelProto  # with the record in its metadata
    record: Quantisation  # the loss
    comparison: Comparison
    scores: tuple[Score, Score] | None  # of the float and the quantised network on labelled images, if there are any
    worst: Sequence[LayerNoise]  # its layers, the lowest signal-to-noise ratio first
    kept: Sequence[Layer]
    layers: int
    bytes_before: int  # the size of the float network's files

    def __repr__(self) -> str:
        return f"<edgedeploy.Made {self.layers - len(self.kept)} of {self.layers} layers quantised>"

    def write(self, path: Path) -> int:
        """Write the network as an ONNX file; returns its size in bytes."""
        content = self.model.SerializeToString()
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        return len(content)


def find_task(
    model: str,
    calibration: Path,
    *,
    demo: str | None = None,
    evaluation: Path | None = None,
    shapes: Shapes | None = None,
    options: ImportOptions = AS_THE_FILE_SAYS,
    most: int = MOST_SAMPLES,
    progress: Progress = SILENT,
) -> Task:
    """Find everything that quantising a network needs, before the long work.

    At most `most` samples are taken from `calibration`: a folder of images or arrays, or a video. `demo` defines how
    images become inputs, and outputs results.
    """
    source = find_source(model, shapes, progress, options)
    use = find_use(model, demo)
    part = use.part if use else None
    if part and not shapes:
        source = replace(source, shapes={**source.shapes, **part.shapes(options)})
    prepared = prepare(source, progress)
    usage = ImageUse.fitting(part, prepared) if part else None
    samples = find_samples(
        calibration, prepared.inputs, usage.feed if usage else None, most, progress, network=source.file
    )
    check_same(prepared, next(iter(samples)).tensors)
    if len(samples) < FEW:
        progress.note(
            f"{len(samples)} samples are few: values that none of them reaches are cut off. Take 100 or more that look "
            "like the network's later inputs"
        )
    if evaluation is None:
        return Task(source, prepared, usage, samples, None)
    if usage is None:
        raise unknown_images()
    return Task(source, prepared, usage, samples, find_evaluation(evaluation, usage))


def make(task: Task, settings: Settings, progress: Progress = SILENT) -> Made:
    """Quantise a network, with equalised channels if that leaves less noise in its outputs."""
    prepared, samples, usage, evaluation = task.prepared, task.samples, task.usage, task.evaluation
    layers = layers_of(prepared.model)
    kept = chosen(layers, settings.keep)

    def calibrated(model: onnx.ModelProto) -> tuple[onnx.ModelProto, Ranges]:
        ranges = calibrate(model, samples, settings.method, progress)
        return model, ranges if settings.own_scales else sharing_ranges(model, ranges)

    def compared(basis: tuple[onnx.ModelProto, Ranges], kept: Sequence[Layer]) -> tuple[onnx.ModelProto, Comparison]:
        """A calibrated network in 8 bits with some layers in float, and how it differs from the float network."""
        made = quantise(*basis, layers, kept)
        made = made if settings.all_pairs else without_inner_pairs(made, basis[0])
        title = f"compare, {len(kept)} layers in float"
        return made, compare(prepared.stated, made, samples, usage, progress, title)

    basis = calibrated(prepared.model)
    level = equalised(prepared.model, samples, progress)
    if level is not prepared.model:
        basis = max(basis, calibrated(level), key=lambda each: compared(each, kept)[1].ratio_db)
    model, ranges = basis
    before = evaluation.score(Runs(prepared.stated), progress, "evaluate the float network") if evaluation else None
    ranked: list[list[Layer]] = []

    @lru_cache(maxsize=1)
    def tried(count: int) -> tuple[onnx.ModelProto, Comparison, Score | None, Quantisation]:
        """The network with so many more units of layers in float, and its loss."""
        in_float = [*kept, *chain.from_iterable(ranked[:count])]
        made, comparison = compared(basis, in_float)
        score = evaluation.score(Runs(made), progress, "evaluate") if evaluation else None
        record = Quantisation(
            method=settings.method,
            equalised=model is not prepared.model,
            samples=len(samples),
            kept=[layer.name for layer in layers if layer in in_float],
            agreement=comparison.agreement,
            accuracy=evaluation.accuracy(before, score) if evaluation and before and score else None,
        )
        return made, comparison, score, record

    def loss_with(count: int) -> float:
        loss = tried(count)[3].loss
        assert loss is not None
        return loss

    most, count = settings.max_loss, 0
    if most is None:
        most = MAX_LOSS_OF_BOXES if tried(0)[1].agreement.of == "boxes" else 1.0
    if (every := loss_with(0)) > most:
        others = [layer for layer in layers if layer not in kept]
        ranked += by_harm(model, ranges, others, samples, progress, all_pairs=settings.all_pairs)
        fewest = fewest_kept(loss_with, len(ranked), most)
        if fewest is None:
            raise InputError(
                f"the loss is above {most:g}, no matter how many layers stay in float",
                why="the network's own preparation changes results by more",
                hints=["allow more with --max-loss"],
            )
        count = fewest
        progress.note(
            f"{sum(map(len, ranked[:count]))} more layers stay in float for a loss of {loss_with(count):.2%}; "
            f"with all of them in 8 bits it is {every:.2%} (--max-loss 1)"
        )
    made, comparison, after, record = tried(count)
    kept = [*kept, *chain.from_iterable(ranked[:count])]
    worst = worst_layers(model, made, layers, samples, progress)
    # The metadata of the network's files, and the record.
    metadata = {entry.key: entry.value for entry in prepared.stated.metadata_props}
    metadata[KEY] = record.model_dump_json(exclude_none=True)
    if prepared.heads:
        metadata[HEADS] = dumped(prepared.heads)
    if usage:
        metadata[ENTRY] = usage.entry_name
    onnx.helper.set_model_props(made, metadata)
    made.producer_name, made.producer_version = "edgedeploy", __version__
    sizes = sum(path.stat().st_size for path in task.source.files)
    scores = (before, after) if before and after else None
    return Made(made, record, comparison, scores, worst, kept, len(layers), sizes)


def quantised_source(task: Task, progress: Progress = SILENT) -> Source:
    """The quantised network of a task with default settings, cached."""
    name, settings, usage = f"{task.source.name}-int8", Settings(), task.usage
    key = {
        "files": task.source.sha256,
        "options": asdict(task.source.options),
        "shapes": {name: list(shape) for name, shape in task.source.shapes.items()},
        "samples": task.samples.identity(),
        "settings": asdict(settings),
        "demo": usage and usage.stage.model_dump(mode="json"),
        "entry": usage and usage.entry_name,
        "input": usage and usage.input.model_dump(mode="json"),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "code": _code(Path(__file__).parent.parent),
    }
    file = _NETWORKS.get_file(
        key_of(key)[:16],
        f"{name}.onnx",
        lambda path: make(task, settings, progress).write(path),
        f"quantising {task.source.name}",
        progress,
    )
    return replace(Source.of(file, {}), name=name)


@cache
def _code(root: Path) -> str:
    return digest_of(sorted(root.rglob("*.py")), root)
