"""PyTorch's exported programs: `.pt2` files of `torch.export.save`, read by TVM's own importer, compared with PyTorch.

`torch.export.load` unpickles what it finds (`torch/export/pt2_archive/_package.py`, PyTorch 2.15): sample inputs
and custom objects, weights whose entry says so; it evaluates symbolic expressions and guards as Python. A file from
elsewhere could run any code so. What it is given here is therefore a copy of the archive that holds the graph, its
weights as plain bytes, and nothing else, after the graph was found to call operators of ATen and of quantisation only.
"""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.binary import read_bytes
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Format, ImportOptions, Shapes
from edgedeploy.frontends.importing import check_shapes, importing, require_packages, specifications
from edgedeploy.network import Network, Reference

_ZIP = b"PK\x03\x04"
# Of protocols 2 to 5, with which PyTorch's files before 1.6 begin.
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")

_MODEL = "models/model.json"
_CONFIGURATIONS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_SAMPLES = "data/sample_inputs/model.pt"
_VALUES = re.compile(r"data/weights/weight_\d+|data/constants/tensor_\d+")
_COPIED = {_MODEL, *_CONFIGURATIONS, "archive_format", "archive_version", "byteorder", ".data/version"}
_LEFT_OUT = {_SAMPLES, ".data/serialization_id"}
# A number that is read from a tensor; of sizes, which go by other letters, nothing can be known.
_NUMBER = re.compile(r"Symbol\('z?uf?\d{1,9}'(, integer=True)?\)")
# ATen has two operators that write or map any file of this machine.
_OF_FILES = r"aten\.(save|from_file)\b"
# Of operators on quantised values, which `torch_quantised` translates.
_QUANTISED = "quantized_decomposed"
# Regions of torch.no_grad() and of autocast, whose graphs PyTorch writes into the one around them.
_REGIONS = r"torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
_OPERATOR = re.compile(rf"torch\.ops\.(?!{_OF_FILES})(aten|{_QUANTISED})\.\w+(\.\w+)?|{_REGIONS}|_operator\.getitem")

# Of what the archive claims to hold, in proportion to its size: PyTorch stores without compression.
_MOST_GROWTH = 4
_DEEPEST = 60  # nested values of a graph; those of PyTorch are a dozen

_EXPORT = "torch.export.save(torch.export.export(model.eval(), (example,)), 'network.pt2')"
_HINTS = [f"export it with PyTorch: {_EXPORT}"]


class TorchExport(Format):
    """A zip archive: the graph as JSON, the weights as bytes."""

    name = "PyTorch"
    suffixes = (".pt2", ".pt", ".pth")
    packages = ("torch",)

    def recognises(self, head: bytes) -> bool:
        """Whether it is an archive or a pickle of PyTorch's; `read` refuses all but exported programs."""
        return head.startswith((_ZIP, *_PICKLES))

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """The file alone."""
        return [path]

    def read(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Network:
        """Import a network; see `Format.read`. Shapes are those of the export: none can be replaced."""
        path = files[0]
        archive = plain_archive(path, read_bytes(path))
        require_packages(path, self.packages, "torch")
        with importing(path, ["export it to ONNX: torch.onnx.export(model, (example,), 'network.onnx')"]):
            program, module = _imported(archive)
        signature = program.graph_signature
        given, returned = specifications(path, module["main"], signature.user_inputs, signature.user_outputs)
        check_shapes(path, given, shapes)
        import torch

        names = [spec.name for spec in given], [spec.name for spec in returned]
        quantised = _is_quantised(program)
        return Network(
            path,
            module,
            given,
            returned,
            quantised,
            _reference(program, *names),
            f"PyTorch {torch.__version__}",
            # Quantised ones take float32 only.
            other_kernels=None if quantised else _reference(program, *names, double=True),
            other_kernels_name="" if quantised else "PyTorch in float64",
        )


FORMAT = TorchExport()


def plain_archive(path: Path, content: bytes) -> bytes:
    """The archive of an exported program with nothing in it that PyTorch would run as code.

    Args:
        path: the file that it comes from, for messages.
        content: what is in that.

    Raises:
        ModelError: it is another kind of file, is damaged, or its graph needs more than ATen's operators.
    """
    if not content.startswith(_ZIP):
        raise _pickled(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > _MOST_GROWTH * len(content):
                raise _malformed(path, "its archive claims to hold much more than its size")
            members = {entry.filename.partition("/")[2]: entry.filename for entry in entries}
            if _MODEL not in members:
                raise _pickled(path) if "data.pkl" in members else _malformed(path, f"there is no {_MODEL} in it")
            for name in members:
                if name not in _COPIED | _LEFT_OUT and not _VALUES.fullmatch(name):
                    raise ModelError(
                        f"{path} holds more than a network", why=f"{name!r} is none of its parts", hints=_HINTS
                    )
            kept = {name: archive.read(full) for name, full in members.items() if name not in _LEFT_OUT}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _malformed(path, str(error)) from error
    kept[_MODEL] = json.dumps(_checked_graph(path, _parsed(path, kept[_MODEL]))).encode()
    for name in _CONFIGURATIONS:
        _check_configuration(path, _parsed(path, kept.get(name, b"")))
    return _zipped({**kept, _SAMPLES: b""})


def _pickled(path: Path) -> ModelError:
    return ModelError(
        f"{path} is a pickle or a TorchScript archive of PyTorch",
        why="loading one runs whatever code it holds, and it need not hold a network",
        hints=["load it where you trust it, and " + _HINTS[0]],
    )


def _malformed(path: Path, why: str) -> ModelError:
    return ModelError(f"{path} is not a complete exported program of PyTorch", why=why, hints=_HINTS)


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from error
    if not isinstance(parsed, dict):
        raise _malformed(path, "its description is no record")
    return parsed


def _checked_graph(path: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The graph without guards, which are Python; all else that could become code is refused."""
    model["guards_code"] = []
    for key, value in _fields(path, model, 0):
        if key == "expr_str" and not (isinstance(value, str) and _NUMBER.fullmatch(value)):
            raise ModelError(
                f"{path} has dimensions that are not fixed",
                why=f"one of them is {str(value)[:80]!r}",
                hints=["export it without dynamic_shapes"],
            )
        if key == "target" and not (isinstance(value, str) and _OPERATOR.fullmatch(value)):
            raise ModelError(
                f"{path}: operator {str(value)[:80]} is not supported",
                why="it is none of ATen's or of quantisation's, or reads or writes files",
            )
    return model


def _fields(path: Path, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Every field of a JSON value, at any depth."""
    if depth > _DEEPEST:
        raise _malformed(path, "its values are nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _fields(path, inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _fields(path, inner, depth + 1)


def _check_configuration(path: Path, configuration: dict[str, Any]) -> None:
    """Refuse weights that are pickles."""
    entries = configuration.get("config")
    if not isinstance(entries, dict):
        raise _malformed(path, "a list of weights is missing")
    for name, entry in entries.items():
        kind = entry.get("path_name") if isinstance(entry, dict) else None
        if not isinstance(kind, str) or not re.fullmatch(r"(weight|tensor)_\d+", kind) or entry.get("use_pickle"):
            raise ModelError(f"{path}: weight {name[:80]!r} is no plain tensor", why="only pickles can hold it")


def _zipped(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(f"network/{name}", content)
    return stream.getvalue()


def _know_quantised() -> None:
    """Make the operators on quantised values known to PyTorch."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401


def _is_quantised(program: Any) -> bool:
    """Whether an exported program has operators on quantised values."""
    from edgedeploy.frontends.torch_operators import nodes_of

    return any(getattr(node.target, "namespace", "") == _QUANTISED for node in nodes_of(program))


def _imported(archive: bytes) -> tuple[Any, Any]:
    """The exported program, and what TVM's importer makes of it."""
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    from edgedeploy.compile.passes.constants import bounded
    from edgedeploy.frontends.torch_numbers import know_numbers
    from edgedeploy.frontends.torch_operators import CONVERSIONS, decomposed

    _know_quantised()
    program = torch.export.load(io.BytesIO(archive))
    with torch.no_grad():
        know_numbers(program)
        module = from_exported_program(
            decomposed(program),
            unwrap_unit_return_tuple=True,
            custom_convert_map=CONVERSIONS,
            run_ep_decomposition=False,
        )
    return program, bounded(module)


def _reference(program: Any, inputs: Sequence[str], outputs: Sequence[str], *, double: bool = False) -> Reference:
    """One inference by PyTorch, as the program says or with float64 in the place of float32."""

    def run(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import torch

        module, values = program.module(), [torch.from_numpy(np.array(tensors[name])) for name in inputs]
        if double:
            module = _in_double(module)
            values = [value.double() if value.dtype is torch.float32 else value for value in values]
        with torch.no_grad():
            returned = module(*values)
        values = [returned] if isinstance(returned, torch.Tensor) else list(returned)
        return {name: value.numpy() for name, value in zip(outputs, values, strict=True)}

    return run


def _in_double(module: Any) -> Any:
    """A copy of a module with float64 where it computes in float32."""
    import torch

    def wider(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    module = copy.deepcopy(module).double()
    for part in (each for each in module.modules() if isinstance(each, torch.fx.GraphModule)):
        for node in list(part.graph.nodes):
            name = str(node.target)
            if name == "wrap_with_autocast":  # device, dtype, enabled
                node.args = (*node.args[:2], False, *node.args[3:])
            if name.startswith("aten._assert_tensor_metadata"):
                part.graph.erase_node(node)
                continue
            node.args, node.kwargs = (torch.fx.node.map_aggregate(each, wider) for each in (node.args, node.kwargs))
        part.recompile()
    return module
