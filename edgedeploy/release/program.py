"""Starting points for users' own programs: the examples, with another network."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from edgedeploy.catalog import builtin_folder
from edgedeploy.errors import InputError, OutputError
from edgedeploy.files import cannot_write, replacing
from edgedeploy.release.layout import is_model

Language = Literal["c", "cpp", "python"]

# The network whose release the examples open.
_EXAMPLE = "retinaface"


def write_program(language: Language, model: str, folder: Path) -> list[Path]:
    """Write a program that opens a model's release in use, and prints what it sees in an image.

    The folder is created if it is missing; existing files are kept. Returns the files, relative to the folder.
    """
    if not is_model(model):
        raise InputError(
            f"invalid name of a model: {model!r}",
            hints=["give the name that `edgedeploy push` shows, of letters, digits, dots, dashes and underscores"],
        )
    sources = sorted((builtin_folder() / "examples" / language).iterdir())
    texts = {Path(source.name): source.read_text(encoding="utf-8") for source in sources if source.is_file()}
    try:
        for name in texts:
            if (folder / name).exists():
                hints = ["name a new folder, or remove that file"]
                raise OutputError(f"{folder / name} is left as it is", why="it exists", hints=hints)
        for name, text in texts.items():
            with replacing(folder / name) as temporary:
                temporary.write_text(text.replace(f'"{_EXAMPLE}"', f'"{model}"'), encoding="utf-8")
    except OSError as error:
        raise cannot_write(folder, error) from error
    return list(texts)
