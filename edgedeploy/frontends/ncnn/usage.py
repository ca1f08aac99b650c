"""What Ultralytics writes beside a network of ncnn, into `metadata.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from edgedeploy.documents import read_document
from edgedeploy.errors import ConfigurationError, ModelError
from edgedeploy.metadata import MOST_CHARACTERS, kept

_Count = Annotated[int, Field(gt=0, le=2**15)]


class Usage(BaseModel):
    """How a network is used; what is left out is not known.

    Attributes:
        task, names, stride, imgsz, kpt_shape, end2end: as `vision.ultralytics.Description` takes them.
        channels: of images.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    task: str | None = None
    names: dict[int, str] | list[str] | None = None
    stride: _Count | None = None
    imgsz: _Count | Annotated[list[_Count], Field(min_length=2, max_length=2)] | None = None
    kpt_shape: list[int] | None = None
    end2end: bool | None = None
    channels: _Count = 3

    @staticmethod
    def of(path: Path) -> Usage:
        """What a file says.

        Raises:
            ModelError: it cannot be read, is too large, or says something else of a field.
        """
        try:
            if path.stat().st_size > MOST_CHARACTERS:
                raise ConfigurationError(f"{path} is too large", why=f"it has more than {MOST_CHARACTERS:,} bytes")
            return read_document(path, Usage) if path.stat().st_size else Usage()
        except (OSError, ConfigurationError) as error:
            what, why = (error.what, error.why) if isinstance(error, ConfigurationError) else (str(error), None)
            raise ModelError(
                what, why=why, hints=["export the network again, or remove that file, which only says how it is used"]
            ) from error

    @property
    def shape(self) -> list[int] | None:
        """Of an image that is the network's input."""
        sides = [self.imgsz] * 2 if isinstance(self.imgsz, int) else self.imgsz
        return [1, self.channels, *sides] if sides else None

    def entries(self) -> dict[str, str]:
        """The same as entries of other formats' files have it."""
        return kept((key, str(value)) for key, value in self.model_dump(exclude_unset=True).items())
