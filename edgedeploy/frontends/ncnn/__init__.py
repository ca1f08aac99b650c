"""ncnn's networks: a text that lists layers (`.param`), and their weights (`.bin`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedeploy.errors import ModelError
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ImportOptions, Shapes

# What a network's text begins with; its binary form begins with the same number, little-endian.
_MAGIC = 7767517


class Ncnn(ConvertedFormat):
    """The text form, with weights in full or half precision, or of 8 bits."""

    name = "ncnn"
    suffixes = (".param", ".bin")

    def recognises(self, head: bytes) -> bool:
        """Whether it begins with ncnn's number, as text or as the binary form that `convert` refuses."""
        return head.split(maxsplit=1)[:1] == [str(_MAGIC).encode()] or _is_binary(head)

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """The text and the weights beside it; see `Format.files`."""
        with path.open("rb") as stream:
            _refuse_binary(path, stream.read(4))
        return super().files(path, options)

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network in ONNX's terms, with ncnn's names of blobs; see `ConvertedFormat.convert`."""
        from edgedeploy.frontends.binary import read_bytes
        from edgedeploy.frontends.ncnn.conversion import converted
        from edgedeploy.frontends.ncnn.text import read_layers
        from edgedeploy.frontends.ncnn.weights import RandomWeights, StoredWeights

        path = files[0]
        content = read_bytes(path)
        _refuse_binary(path, content)
        layers = read_layers(path, content)
        if options.weights == "random":
            return Converted(converted(path, layers, RandomWeights(path), shapes))
        if len(files) < 2:
            raise self.without_weights(path)
        stored = StoredWeights(files[1], read_bytes(files[1]))
        model = converted(path, layers, stored, shapes)
        stored.check_end()
        return Converted(model)


FORMAT = Ncnn()


def _is_binary(head: bytes) -> bool:
    return head.startswith(_MAGIC.to_bytes(4, "little"))


def _refuse_binary(path: Path, head: bytes) -> None:
    if _is_binary(head):
        raise ModelError(
            f"{path} cannot be read",
            why="it is the binary form of ncnn's .param, which names neither layers nor blobs",
            hints=["use the .param file in text form that it was made from, with the same .bin file"],
        )
