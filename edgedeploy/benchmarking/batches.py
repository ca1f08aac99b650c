"""Whether a network that was written for one batch computes another one as it should."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from edgedeploy.errors import InputError, last_line
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.onnx_settings import with_own_inputs
from edgedeploy.onnxruntime_session import cpu_session
from edgedeploy.zoo.source import Source

# Of the largest value; sums of another order differ by less, and images that were mixed by more.
_TOLERANCE = 1e-3


def check_batch(alone: Source, together: Source) -> None:
    """Check that a network gives for the first and the last image of a batch what it gives for them alone.

    Exporters write the batch into constants, which can be found for most networks only; what is wrong then may run all
    the same, and mix images.

    Args:
        alone: the network for the batch of its file.
        together: the same for another batch.
    """
    single, several = _model(alone), _model(together)
    inputs = _random_inputs(several)
    before = next(iter(_shapes(single).values()))[0]
    after = next(iter(inputs.values())).shape[0]
    try:
        batch = cpu_session(several.SerializeToString()).run(None, inputs)
        session = cpu_session(single.SerializeToString())
        for part in (slice(0, before), slice(after - before, after)):
            images = session.run(None, {name: array[part] for name, array in inputs.items()})
            for output, whole, image in zip(single.graph.output, batch, images, strict=True):
                _check_alike(output.name, whole, image, part)
    except Exception as error:  # onnxruntime's have no common base
        raise InputError(
            f"{together.name} cannot have a batch of {after}",
            why=last_line(error),
            hints=["export it with a batch of that size, or with one that is left open"],
        ) from error


def _model(source: Source) -> onnx.ModelProto:
    assert isinstance(source.format, ConvertedFormat)  # others have no batch to change
    return with_own_inputs(source.format.convert(source.files, source.shapes, source.options))


def _shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    return {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in model.graph.input}


def _random_inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Inputs that differ from image to image: floats in [0, 1), integers of 0 and 1, which are indices of anything."""
    random = np.random.default_rng(0)
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    made = {}
    for name, shape in _shapes(model).items():
        dtype = helper.tensor_dtype_to_np_dtype(types[name])
        made[name] = random.random(shape) if dtype.kind == "f" else random.integers(0, 2, shape)
        made[name] = np.asarray(made[name]).astype(dtype)
    return made


def _check_alike(name: str, batch: np.ndarray, image: np.ndarray, part: slice) -> None:
    """Check one output of a part of a batch."""
    if batch.shape[1:] != image.shape[1:] or not batch.ndim or len(batch) < part.stop:
        raise ValueError(f"its output {name!r} has no batch: {list(batch.shape)}, and {list(image.shape)} for one")
    found, wanted = (array.astype(np.float64) for array in (batch[part], image))
    if not np.allclose(found, wanted, rtol=0, atol=_TOLERANCE * float(np.abs(wanted).max(initial=0.0)), equal_nan=True):
        raise ValueError(f"images of a batch change each other's results in its output {name!r}")
