"""The formats that networks come in, and which of them a file has."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

from edgedeploy.errors import ModelError
from edgedeploy.files import is_file, is_folder
from edgedeploy.frontends.foreign import foreign, is_package
from edgedeploy.frontends.format import HEAD_BYTES, Format
from edgedeploy.plugins import Group

# Modules of this package with a FORMAT each, in the order in which they are asked. ONNX files begin with nothing
# of their own, so it comes last.
_MODULES = ("tengine", "darknet", "ncnn", "tflite", "torch_export", "onnx")

# Those of other packages.
_OTHERS: Group[Format] = Group(
    "edgedeploy.formats", "format", "Format", lambda given: given.name if isinstance(given, Format) else None
)


@cache
def formats() -> tuple[Format, ...]:
    """All formats; those of other packages are asked before the last one."""
    own = [importlib.import_module(f"edgedeploy.frontends.{name}").FORMAT for name in _MODULES]
    others = _OTHERS.sound([each.name for each in own])
    return (*own[:-1], *others, own[-1])


def suffixes() -> set[str]:
    """What names of network files end with."""
    return {suffix for each in formats() for suffix in each.suffixes}


def describing(path: Path) -> tuple[Format, Path]:
    """The format of a network, and the file that describes it.

    Args:
        path: that file, the file with its weights, or a folder with one network of ncnn, as pnnx's users keep it.
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
            f"{path} describes no network",
            why=f"a file of this name holds the weights of a network of {each.name}, and there is no description of "
            f"one in {description}",
            hints=[
                f"put {description.name} beside it",
                "if that lies elsewhere: edgedeploy models import, with both files and a --name",
            ],
        )
    raise ModelError(
        f"{path} is no network that edgedeploy knows",
        why="its content is none of " + ", ".join(each.name for each in formats()),
        hints=["check that it is complete, and that weights lie beside their network, with the same name"],
    )


def holds_network(folder: Path) -> bool:
    """Whether a folder is taken for a network: it holds one of ncnn's, or one that is not read."""
    return is_folder(folder) and (_network_in(folder) is not None or foreign(folder) is not None)


def _network_in(folder: Path) -> Path | None:
    """The only description of a network of ncnn in a folder."""
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
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
    except OSError as error:
        raise ModelError(f"cannot read {path}", why=error.strerror or str(error)) from error
    if is_package(path):
        raise ModelError(f"{path} is a package, not a network", hints=["`edgedeploy run` and `push` take packages"])
    if refused := foreign(path, by_name=False):
        raise refused
    return next((each for each in formats() if each.recognises(head)), None)
