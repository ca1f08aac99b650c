"""Label sets: the names of a network's classes, one per line in `models/labels/<name>.txt`.

They are found as the zoo's entries are: a path, `./models/labels`, the user's configuration folder, edgedeploy's own.
"""

from __future__ import annotations

from pathlib import Path

from edgedeploy.catalog import unknown_name
from edgedeploy.errors import ConfigurationError, UnknownNameError
from edgedeploy.files import is_file
from edgedeploy.zoo.entry import MODELS


def label_sets() -> list[str]:
    """The names of all label sets, sorted."""
    return sorted({path.stem for folder in _folders() for path in folder.glob("*.txt")})


def load_labels(name: str) -> list[str]:
    """The class names of the label set `name`, in the order of the network's outputs.

    Args:
        name: the name of a label set, or a path that ends in .txt.
    """
    path = _find(name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}", why=str(error)) from error
    labels = [line.strip() for line in lines]
    while labels and not labels[-1]:
        labels.pop()
    if not labels:
        raise ConfigurationError(f"{path}: there are no labels in it", hints=["write one class name per line"])
    if "" in labels:
        raise ConfigurationError(
            f"{path}:{labels.index('') + 1}: the line is empty",
            why="the line is the number of the class, so that an empty one would shift all after it",
        )
    return labels


def _folders() -> list[Path]:
    return [folder / "labels" for folder in MODELS.folders()]


def _find(name: str) -> Path:
    if name.endswith(".txt"):
        if is_file(Path(name)):
            return Path(name)
        raise UnknownNameError(f"there is no label file {name!r}")
    if "/" not in name:
        for folder in _folders():
            path = folder / f"{name}.txt"
            if is_file(path):
                return path
    hint = "give a path that ends in .txt, or put one class name per line into ./models/labels/NAME.txt"
    raise unknown_name("label set", name, label_sets(), hints=[hint])
