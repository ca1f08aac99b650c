"""Networks that find the brightest pixel, as text: `brightest HEIGHT WIDTH`."""

from collections.abc import Sequence
from pathlib import Path

from edgedeploy.errors import InputError, ModelError
from edgedeploy.frontends.converted import ConvertedFormat
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, Converted, ImportOptions, Shapes


class BrightestFormat(ConvertedFormat):
    """One file."""

    name = "brightest"
    suffixes = (".brightest",)

    def recognises(self, head: bytes) -> bool:
        """Whether it begins with the word."""
        return head.startswith(b"brightest ")

    def convert(self, files: Sequence[Path], shapes: Shapes, options: ImportOptions = AS_THE_FILE_SAYS) -> Converted:
        """Two reductions over one grey image."""
        from onnx import TensorProto, helper

        try:
            height, width = map(int, files[0].read_text(encoding="utf-8").split()[1:])
        except ValueError as error:
            raise ModelError(f"{files[0]} does not say height and width", why=str(error)) from error
        if not (1 <= height <= 4096 and 1 <= width <= 4096):
            raise ModelError(f"{files[0]} has no possible size", why=f"{height}x{width}: 1 to 4096 are")
        size = [1, 1, height, width]
        if any(name != "data" or list(shape) != size for name, shape in shapes.items()):
            raise InputError(f"{files[0]}: its one input, data, has the size that the file states")
        nodes = [
            helper.make_node("Flatten", ["data"], ["pixels"]),
            helper.make_node("ReduceMax", ["pixels"], ["value"], axes=[1]),
            helper.make_node("ArgMax", ["pixels"], ["number"], axis=1),
        ]
        data = helper.make_tensor_value_info("data", TensorProto.FLOAT, size)
        value = helper.make_tensor_value_info("value", TensorProto.FLOAT, [1, 1])
        number = helper.make_tensor_value_info("number", TensorProto.INT64, [1, 1])
        graph = helper.make_graph(nodes, "brightest", [data], [value, number])
        return Converted(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))


FORMAT = BrightestFormat()
