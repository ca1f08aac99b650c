"""A network as the quantiser needs it: ONNX with fixed shapes, folded batch normalisation, named nodes; and its use."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError, ModelError, UnsupportedError, last_line
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.onnx.nodes import opset_of
from edgedeploy.model.heads import Head
from edgedeploy.model.onnxruntime_session import computing, cpu_session, is_onnxruntimes
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.quantisation.samples import no_numbers
from edgedeploy.zoo.source import Source

_OPSET = 13  # the first opset whose QuantizeLinear takes a scale for each channel

_QUANTISED = {
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    *("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"),
}

# The tolerance for outputs of the prepared network, as a fraction of their largest value: folding rounds weights again.
_TOLERANCE = 1e-3

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({kind}{bits})": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}
_FAULTS = (ValueError, RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)

_INSTEAD = {
    "TensorFlow Lite": "quantise it with TensorFlow's own converter and a representative data set: such files are "
    "built as they are",
    "PyTorch": "quantise it with torchao's pt2e, or export it to ONNX (torch.onnx.export) and quantise that",
}


@dataclass(frozen=True)
class Prepared:
    """A float network that can be quantised: as `stated` in its files, and prepared.

    An output's size of -1 depends on the data.
    """

    stated: onnx.ModelProto
    model: onnx.ModelProto
    inputs: Sequence[TensorSpec]
    results: Sequence[TensorSpec]
    heads: Sequence[Head]
    metadata: Mapping[str, str]


def prepare(source: Source, progress: Progress = SILENT) -> Prepared:
    """Prepare a network."""
    _require_quantiser()
    if not isinstance(source.format, ConvertedFormat):
        name = source.format.name
        raise UnsupportedError(
            f"{source.file} cannot be quantised here",
            why=f"networks of {name} are not translated into ONNX, which the quantiser reads",
            hints=[next((hint for key, hint in _INSTEAD.items() if key in name), "export it to ONNX")],
        )
    with progress.stage("read the network"):
        converted = source.format.convert(source.files, source.shapes, source.options)
    stated = converted.stated or converted.model
    if any(node.op_type in _QUANTISED for node in stated.graph.node):
        raise InputError(
            f"{source.file} is quantised already", hints=["build it as it is", "name the original float network"]
        )
    if converted.values:
        raise UnsupportedError(f"{source.file} cannot be quantised with values that are set")
    with progress.stage("prepare"):
        try:
            recent = opset_of(stated) >= _OPSET
            model = _folded(stated if recent else onnx.version_converter.convert_version(stated, _OPSET))
            session = cpu_session(stated.SerializeToString())
        except Exception as error:
            if not (isinstance(error, _FAULTS) or is_onnxruntimes(error)):
                raise
            raise ModelError(f"{source.file} cannot be prepared for quantisation", why=last_line(error)) from error
    inputs, results = (
        [
            TensorSpec(
                name=each.name,
                shape=[size if isinstance(size, int) and size >= 0 else -1 for size in each.shape],
                dtype=_DTYPES.get(each.type, "float32"),
            )
            for each in values
        ]
        for values in (session.get_inputs(), session.get_outputs())
    )
    return Prepared(stated, model, inputs, results, converted.heads, converted.metadata)


def check_same(prepared: Prepared, tensors: Tensors) -> None:
    """Check that preparing has not changed the outputs of the network."""
    with computing():
        before, after = (
            cpu_session(model.SerializeToString(), optimised=False).run(None, dict(tensors))
            for model in (prepared.stated, prepared.model)
        )
    for spec, expected, found in zip(prepared.results, before, after, strict=True):
        if not np.isfinite(expected).all():
            raise no_numbers(f"output {spec.name!r} of the float network")
        if not np.allclose(found, expected, rtol=0, atol=_TOLERANCE * float(np.abs(expected).max(initial=1e-6))):
            raise ModelError(
                f"output {spec.name!r} changes when the network is prepared for quantisation",
                why=f"by {float(np.abs(found - expected).max()):g}, before anything is quantised",
                hints=[f"export it again, to opset {_OPSET} or later"],
            )


def _require_quantiser() -> None:
    """Import onnxruntime's quantiser: newer versions of it need packages that older versions of onnx do not bring."""
    try:
        import onnxruntime.quantization  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            "onnxruntime's quantiser cannot be loaded",
            why=str(error),
            hints=[f"pip install {error.name or 'onnxruntime'}", "pip install --upgrade onnx onnxruntime"],
        ) from error


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with shapes inferred, constants and batch normalisation folded, and unique names of nodes."""
    import onnxruntime
    from onnxruntime.quantization.shape_inference import quant_pre_process

    onnxruntime.disable_telemetry_events()
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(model, before)
        quant_pre_process(before, after, skip_symbolic_shape=True)  # shapes are fixed, and sympy is not needed
        folded = onnx.load(after)
    used = {node.domain for node in folded.graph.node} | {""}
    kept = [each for each in folded.opset_import if each.domain in used or (each.domain == "ai.onnx" and "" in used)]
    del folded.opset_import[:]
    folded.opset_import.extend(kept)
    taken: set[str] = set()
    for node in folded.graph.node:
        if not node.name or node.name in taken:
            node.name = next(output for output in node.output if output)
        taken.add(node.name)
    return folded
