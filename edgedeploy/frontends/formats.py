"""The formats that networks come in, which of them a file has, and files that are not read: how to convert them."""

from __future__ import annotations

import importlib
import re
import shlex
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgedeploy.base.files import is_file, is_folder
from edgedeploy.base.plugins import Group
from edgedeploy.errors import ModelError
from edgedeploy.frontends.format import HEAD_BYTES, Format

# Modules of this package with a FORMAT each, in the order in which they are asked. ONNX files have no distinct
# beginning, so it comes last.
_MODULES = ("tengine", "darknet", "ncnn", "tflite", "torch", "onnx")

# Formats of other packages.
_OTHERS: Group[Format] = Group(
    "edgedeploy.formats", "format", "Format", lambda given: given.name if isinstance(given, Format) else None
)


@cache
def formats() -> tuple[Format, ...]:
    """All formats; those of other packages are asked before the last one."""
    own = [importlib.import_module(f"edgedeploy.frontends.{name}").FORMAT for name in _MODULES]
    return (*own[:-1], *_OTHERS.sound([each.name for each in own]), own[-1])


def suffixes() -> set[str]:
    """The suffixes of network files."""
    return {suffix for each in formats() for suffix in each.suffixes}


def describing(path: Path) -> tuple[Format, Path]:
    """The format of a network, and the file that describes it.

    The path is that of this file, of that with its weights, or of a folder with one network of ncnn, as pnnx makes it.
    """
    path = _network_in(path) or path
    found = None if is_folder(path) else _recognised(path)
    if found is not None:
        return found, path
    if error := foreign(path):
        raise error
    if is_folder(path):
        within = sorted(each for each in path.glob("*") if each.suffix in suffixes())
        raise ModelError(
            f"cannot read {path}",
            why="it is a folder",
            hints=[f"give a file in it: {', '.join(map(str, within[:5]))}"] if within else (),
        )
    for each in formats():
        if path.suffix not in each.suffixes[1:]:
            continue
        description = path.with_suffix(each.suffixes[0])
        if is_file(description) and _recognised(description) is each:
            return each, description
        raise ModelError(
            f"{path} does not describe a network",
            why=f"files of this name hold weights for {each.name}, and {description} does not describe their network",
            hints=[
                f"put {description.name} next to it",
                "if that is elsewhere: edgedeploy models import, with both files and a --name",
            ],
        )
    raise ModelError(
        f"{path} is not a network of a known format",
        why="known formats: " + ", ".join(each.name for each in formats()),
        hints=["check that it is complete, and that weights are next to their network, with the same name"],
    )


def holds_network(folder: Path) -> bool:
    """Whether a folder holds a network of ncnn, or of a format that is not read."""
    return is_folder(folder) and (_network_in(folder) is not None or foreign(folder) is not None)


def _network_in(folder: Path) -> Path | None:
    """The description of ncnn's network in a folder that has just one."""
    if not is_folder(folder):
        return None
    found = list(folder.glob("*.ncnn.param")) or list(folder.glob("*.param"))
    return found[0] if len(found) == 1 else None


def _recognised(path: Path) -> Format | None:
    try:
        if path.exists() and not is_file(path) and not is_folder(path):
            raise ModelError(
                f"cannot read {path}", why="it is a pipe or a device, and networks are read more than once"
            )
        head = _head(path)[:HEAD_BYTES]
    except OSError as error:
        raise ModelError(f"cannot read {path}", why=error.strerror or str(error)) from error
    if is_package(path):
        raise ModelError(f"{path} is a package, not a network", hints=["`edgedeploy run` and `push` take packages"])
    if refused := foreign(path, by_name=False):
        raise refused
    return next((each for each in formats() if each.recognises(head)), None)


_HEAD_BYTES = 1 << 16

# Lines of Caffe's text, and of no other format's here, begin with layers in braces or sizes of inputs.
_PROTOTXT = rb"(?m).*^\s*(layers?\s*\{|input_dim\s*:|input_shape\s*\{)"

_TENSORFLOW = "tf2onnx and TensorFlow are needed: pip install tf2onnx tensorflow"
_KERAS = ("python -m tf2onnx.convert --keras {path} --output net.onnx", _TENSORFLOW)
_SAVED_MODEL = (
    "python -m tf2onnx.convert --saved-model {folder} --opset 17 --output net.onnx",
    "python -c \"import tensorflow as tf; open('net.tflite', 'wb').write("
    "tf.lite.TFLiteConverter.from_saved_model('{folder}').convert())\"",
    _TENSORFLOW,
)
_CAFFE = (
    "caffe2ncnn {base}.prototxt {base}.caffemodel {stem}.param {stem}.bin",
    "then: edgedeploy models import {stem}.param {stem}.bin --name {stem}",
    "caffe2ncnn is one of ncnn's tools (ncnn-VERSION-ubuntu-VERSION.zip of its releases)",
)
_PYTORCH = ("torch.export.save(torch.export.export(model.eval(), (example,)), 'network.pt2')",)
_PNNX = ("give the file in ncnn's form, which pnnx writes next to it: {ncnn}",)
_ORIGIN = ("give the network that it was converted from, or export that network to ONNX",)
_PAGE = ("download the file itself: by GitHub's button Raw, at Hugging Face with /resolve/ instead of /blob/",)


@dataclass(frozen=True)
class _Kind:
    """A kind of files or folders that are not read; all of its conditions must hold."""

    description: str
    hints: Sequence[str]  # with the fields of `_hints`
    begins: bytes = b""  # a pattern of the file's beginning
    member: str = ""  # a pattern of the name of something in the folder or zip archive
    without: str = ""  # a pattern that no name in it matches
    suffixes: tuple[str, ...] = ()  # of the name; such a file may still be a network by its content


_KINDS = (
    _Kind("compressed by gzip", ["gzip -dc {path} > {plain}"], rb"\x1f\x8b"),
    _Kind("compressed by xz", ["xz -dc {path} > {plain}"], rb"\xfd7zXZ"),
    _Kind("compressed by zstd", ["zstd -dc {path} > {plain}"], rb"\x28\xb5\x2f\xfd"),
    _Kind("compressed by bzip2", ["bzip2 -dc {path} > {plain}"], rb"BZh[1-9]"),
    _Kind("code that PyTorch's AOTInductor compiled for one machine", _PYTORCH, rb"PK", r"(^|/)data/aotinductor/"),
    _Kind("a network of Keras", _KERAS, rb"PK", r"^model\.weights\.h5$"),
    _Kind("a network in the form of pnnx, ncnn's converter", _PNNX, rb"7767517\s+\d+\s+\d+\s+pnnx\.Input\s"),
    _Kind("weights in the form of pnnx, ncnn's converter", _PNNX, rb"PK", r"^[^/]+\.(weight|bias|data)$"),
    _Kind(
        "a zip archive",
        ["unpack it: unzip {path}, and give the network's file in it"],
        rb"PK",
        without=r"(^|/)(data\.pkl|archive_format|\.data/.*|models/.*\.json)$",
    ),
    _Kind("a pointer of Git LFS to a file", ["git lfs pull, in the repository"], rb"version https://git-lfs"),
    _Kind("a web page", _PAGE, rb"(?i)\s*<(!doctype html|html)\b"),
    _Kind("a network of OpenVINO", _ORIGIN, rb"\s*(<\?xml[^>]*>\s*)?<net\b"),
    _Kind("an engine of TensorRT, for one kind of GPU", _ORIGIN, rb"ftrt"),
    _Kind("a network for Rockchip's NPUs (RKNN)", _ORIGIN, rb"RKNN"),
    _Kind("a network for Hailo's accelerators (HEF)", _ORIGIN, rb"\x01HEF"),
    _Kind("a network of ExecuTorch", _PYTORCH, rb"(?s).{4}ET\d\d"),
    _Kind("a network in onnxruntime's own format (ORT)", _ORIGIN, rb"(?s).{4}ORTM"),
    _Kind("a language model of llama.cpp (GGUF)", _ORIGIN, rb"GGUF"),
    _Kind("a folder with a network of TensorFlow Lite", ["give the file in it: {member}"], member=r"\.tflite$"),
    _Kind("a SavedModel of TensorFlow", _SAVED_MODEL, member=r"^saved_model\.pb$"),
    _Kind("a folder with a network of OpenVINO", _ORIGIN, member=r"\.xml$"),
    _Kind("a SavedModel of TensorFlow", _SAVED_MODEL, suffixes=("saved_model.pb",)),
    _Kind(
        "a frozen graph of TensorFlow",
        [
            "python -m tf2onnx.convert --graphdef {path} --inputs INPUT:0 --outputs OUTPUT:0 --output net.onnx",
            _TENSORFLOW,
        ],
        suffixes=(".pb",),
    ),
    _Kind("a network of Keras", _KERAS, suffixes=(".h5", ".keras")),
    _Kind("a network of Caffe", _CAFFE, suffixes=(".caffemodel",)),
    _Kind("a network of Caffe", _CAFFE, _PROTOTXT, suffixes=(".prototxt",)),
    _Kind("a network of Core ML", _ORIGIN, suffixes=(".mlmodel", ".mlpackage", ".mlmodelc")),
    _Kind("a network of MNN", _ORIGIN, suffixes=(".mnn",)),
    _Kind("a network for Qualcomm's NPUs", _ORIGIN, suffixes=(".dlc",)),
    _Kind("an engine of TensorRT, for one kind of GPU", _ORIGIN, suffixes=(".engine", ".trt", ".plan")),
    _Kind("a network for Rockchip's NPUs (RKNN)", _ORIGIN, suffixes=(".rknn",)),
    _Kind("a network for Hailo's accelerators (HEF)", _ORIGIN, suffixes=(".hef",)),
    _Kind("a network of ExecuTorch", _PYTORCH, suffixes=(".pte",)),
    _Kind("a network of PaddlePaddle", _ORIGIN, suffixes=(".pdmodel", ".pdiparams")),
    _Kind("weights without a network", _PYTORCH, suffixes=(".safetensors",)),
)


def foreign(path: Path, *, by_name: bool = True) -> ModelError | None:
    """The error for a file or folder of a known kind that is not read, with hints to convert it; None for others.

    Its name may decide only if its content is not a network's (`by_name`).
    """
    try:
        folder = is_folder(path)
        head = b"" if folder else _head(path)
        members = sorted(each.name for each in path.iterdir()) if folder else _members(path, head)
    except OSError:
        return None
    for kind in _KINDS:
        if kind.suffixes and not (by_name and path.name.endswith(kind.suffixes)):
            continue
        found = [name for name in members if kind.member and re.search(kind.member, name)]
        lacking = not found if kind.member else not (kind.suffixes or head)
        barred = kind.without and (not members or any(re.search(kind.without, name) for name in members))
        if not lacking and not barred and (not kind.begins or re.match(kind.begins, head, re.DOTALL)):
            return ModelError(
                f"{path} is {kind.description}", why="that is not read here", hints=_hints(kind, path, found)
            )
    return None


def is_package(path: Path) -> bool:
    """Whether a file is a package by its name or content: a tar archive, compressed by gzip."""
    head = _head(path)
    if not head.startswith(b"\x1f\x8b"):
        return False
    try:
        unpacked = zlib.decompressobj(31).decompress(head, 512)
    except zlib.error:
        unpacked = b""
    return unpacked[257:262] == b"ustar" or path.name.endswith((".tar.gz", ".tgz"))


def _head(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(_HEAD_BYTES)


def _members(path: Path, head: bytes) -> list[str]:
    """The names in a zip archive; none in other or damaged files."""
    if not head.startswith(b"PK"):
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError):
        return []


def _hints(kind: _Kind, path: Path, found: Sequence[str]) -> list[str]:
    inner = path.stem if path.suffix in (".gz", ".xz", ".zst", ".bz2") else f"{path.stem}-unpacked{path.suffix}"
    places = {
        "path": path,
        "folder": path if is_folder(path) else path.parent,
        "base": path.with_suffix(""),
        "plain": path.with_name(inner),  # unpacked
        "ncnn": path.with_name(re.sub(r"(\.pnnx)?\.\w+$", ".ncnn.param", path.name)),
        "member": path / found[0] if found else path,
    }
    quoted = {name: shlex.quote(str(place)) for name, place in places.items()}
    return [hint.format(stem=path.stem, **quoted) for hint in kind.hints]
