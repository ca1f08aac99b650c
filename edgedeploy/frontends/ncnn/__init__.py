"""ncnn's networks: a text that lists layers (`.param`), and their weights (`.bin`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from edgedeploy.base.files import is_file
from edgedeploy.errors import ModelError
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ImportOptions, Shapes
from edgedeploy.frontends.importing import read_bytes
from edgedeploy.frontends.ncnn.text import Usage, read_layers

# What a network's text begins with; its binary form begins with the same number, little-endian.
_MAGIC = 7767517
_BINARY = _MAGIC.to_bytes(4, "little")


class Ncnn(ConvertedFormat):
    """The text form, with weights in full or half precision, or of 8 bits; and Ultralytics' metadata."""

    name = "ncnn"
    suffixes = (".param", ".bin", ".metadata")

    def recognises(self, head: bytes) -> bool:
        """Whether it begins with ncnn's number, as text or as the binary form, which `convert` refuses."""
        return head.split(maxsplit=1)[:1] == [str(_MAGIC).encode()] or head.startswith(_BINARY)

    def files(self, path: Path, options: ImportOptions = AS_THE_FILE_SAYS) -> list[Path]:
        """The text, the weights and `metadata.yaml` next to it; see `Format.files`."""
        with path.open("rb") as stream:
            _refuse_binary(path, stream.read(4))
        files, metadata = super().files(path, options), path.with_name("metadata.yaml")
        whole = len(files) > 1 and path.name.endswith(".ncnn.param") and is_file(metadata)
        return [*files, metadata] if whole else files

    def metadata(self, files: Sequence[Path]) -> Mapping[str, str]:
        """The entries of `metadata.yaml`; see `Format.metadata`."""
        return _usage(files).entries()

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """The network as an ONNX model with ncnn's names of blobs; see `ConvertedFormat.convert`."""
        from edgedeploy.frontends.ncnn.conversion import converted
        from edgedeploy.frontends.ncnn.weights import RandomWeights, StoredWeights

        path = files[0]
        content = read_bytes(path)
        _refuse_binary(path, content)
        layers = read_layers(path, content)
        if options.weights == "random":
            return Converted(converted(path, layers, RandomWeights(path), shapes))
        if len(files) < 2:
            raise self.without_weights(path)
        usage = _usage(files)
        stored = StoredWeights(files[1], read_bytes(files[1]))
        model = converted(path, layers, stored, shapes, usage.shape)
        stored.check_end()
        return Converted(model, metadata=usage.entries())


FORMAT = Ncnn()


def _usage(files: Sequence[Path]) -> Usage:
    return Usage.of(files[2]) if len(files) > 2 else Usage()


def _refuse_binary(path: Path, head: bytes) -> None:
    if head.startswith(_BINARY):
        raise ModelError(
            f"{path} cannot be read",
            why="it is the binary form of ncnn's .param, which has no names of layers and blobs",
            hints=["use the .param file in text form that it was converted from, with the same .bin file"],
        )
