"""PyTorch's exported programs: `.pt2` files of `torch.export.save`, read by TVM's own importer, compared with PyTorch.

`torch.export.load` unpickles sample inputs, custom objects and some weights (`torch/export/pt2_archive/_package.py`,
PyTorch 2.15), and evaluates symbolic expressions and guards as Python, so an untrusted file could run any code. It
therefore gets a copy of the archive with the graph, its weights as plain bytes, and nothing else, after a check that
the graph calls only operators of ATen and of quantisation.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgedeploy.errors import ModelError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Format, ImportOptions, Shapes, check_shapes
from edgedeploy.frontends.importing import importing, read_bytes, require_packages, specifications
from edgedeploy.model.network import Network

_ZIP = b"PK\x03\x04"
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # protocols 2 to 5; PyTorch's files before 1.6 begin so

_MODEL = "models/model.json"
_CONFIGURATIONS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_SAMPLES = "data/sample_inputs/model.pt"
_VALUES = re.compile(r"data/weights/weight_\d+|data/constants/tensor_\d+")
_COPIED = {_MODEL, *_CONFIGURATIONS, "archive_format", "archive_version", "byteorder", ".data/version"}
_LEFT_OUT = {_SAMPLES, ".data/serialization_id"}
# A number that is read from a tensor; sizes, which have other letters, cannot be known.
_NUMBER = re.compile(r"Symbol\('z?uf?\d{1,9}'(, integer=True)?\)")
_OF_FILES = r"aten\.(save|from_file)\b"  # ATen has two operators that write or map any file of this machine
_QUANTISED = "quantized_decomposed"  # the namespace of operators on quantised values
# Regions of torch.no_grad() and of autocast, whose graphs PyTorch writes into the one around them.
_REGIONS = r"torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
_OPERATOR = re.compile(rf"torch\.ops\.(?!{_OF_FILES})(aten|{_QUANTISED})\.\w+(\.\w+)?|{_REGIONS}|_operator\.getitem")

_MOST_GROWTH = 4  # of an archive that is unpacked: PyTorch stores without compression
_DEEPEST = 60  # nested values of a graph; those of PyTorch are a dozen

_HINTS = ["export it with PyTorch: torch.export.save(torch.export.export(model.eval(), (example,)), 'network.pt2')"]


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
        """Import a network; see `Format.read`. The export fixes its shapes."""
        path = files[0]
        archive = plain_archive(path, read_bytes(path))
        require_packages(path, self.packages, "torch")
        with importing(path, ["export it to ONNX: torch.onnx.export(model, (example,), 'network.onnx')"]):
            import torch

            from edgedeploy.frontends.torch.program import imported, inferred, nodes_of

            program, module = imported(archive)
        signature = program.graph_signature
        given, returned = specifications(path, module["main"], signature.user_inputs, signature.user_outputs)
        check_shapes(path, given, shapes)
        names = [spec.name for spec in given], [spec.name for spec in returned]
        quantised = any(getattr(node.target, "namespace", "") == _QUANTISED for node in nodes_of(program))
        return Network(
            path,
            module,
            given,
            returned,
            quantised,
            partial(inferred, program, *names, False),
            f"PyTorch {torch.__version__}",
            # Quantised ones take float32 only.
            other_kernels=[] if quantised else [partial(inferred, program, *names, True)],
            other_kernels_name="" if quantised else "PyTorch in float64",
        )


FORMAT = TorchExport()


def plain_archive(path: Path, content: bytes) -> bytes:
    """The archive in a file of an exported program, without anything that PyTorch would run as code."""
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
                        f"{path} holds more than a network", why=f"{name!r} is not a part of one", hints=_HINTS
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
        why="loading one runs any code in it, and it need not hold a network",
        hints=["load it if you trust it, and " + _HINTS[0]],
    )


def _malformed(path: Path, why: str) -> ModelError:
    return ModelError(f"{path} is not a complete exported program of PyTorch", why=why, hints=_HINTS)


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _malformed(path, str(error)) from error
    if not isinstance(parsed, dict):
        raise _malformed(path, "its description is not a record")
    return parsed


def _checked_graph(path: Path, model: dict[str, Any]) -> dict[str, Any]:
    """The graph without guards, which are Python; everything else that could become code is refused."""
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
                why="it is not an operator of ATen or of quantisation, or it reads or writes files",
            )
    return model


def _fields(path: Path, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """All fields of a JSON value, at any depth."""
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
            raise ModelError(f"{path}: weight {name[:80]!r} is not a plain tensor", why="only pickles can hold it")


def _zipped(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(f"network/{name}", content)
    return stream.getvalue()
