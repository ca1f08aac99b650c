"""What Ultralytics' exporters write into a file, from the file to the decoder, and hostile texts in its place."""

from pathlib import Path
from time import process_time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx import FORMAT, read_onnx
from edgedeploy.model import metadata
from edgedeploy.vision.decoders.ultralytics import Description, Ultralytics


def test_values_are_read_as_python_writes_them() -> None:
    said = {
        "task": "pose",
        "names": str({0: 'it\'s a "cat"', 1: "Ä\\n"}),
        "stride": "32",
        "imgsz": "[320, 640]",
        "kpt_shape": "[5, 2]",
        "author": "somebody",
    }
    assert Description.of(said) == Description(
        task="pose", names=['it\'s a "cat"', "Ä\\n"], stride=32, imgsz=(320, 640), kpt_shape=(5, 2)
    )


def test_what_is_not_said_is_as_usual() -> None:
    assert Description.of({}) == Description(task=None, names=[], stride=32, imgsz=None, kpt_shape=(17, 3))


def test_names_are_a_list_or_have_numbers_of_which_some_may_be_missing() -> None:
    assert Description.of({"names": "['a', 'b']"}).names == ["a", "b"]
    assert Description.of({"names": "{2: 'c', 0: 'a'}"}).names == ["a", "1", "c"]


HOSTILE = ["{" * 100_000, "[1," * 90 + "]" * 90, "-" * 100_000 + "1", "1" + "+1" * 50_000, "'" * 100_001]
HOSTILE += ["'\\" * 50_000, "9" * 100_000, "__import__('os').getcwd()", "open('x')", "{[]: 'a'}", '{"0": "json"}', "\0"]
HOSTILE += ["{0: 'a', 100000: 'b'}", "{-1: 'a'}", "{True: 'a'}", "{0: 1}", "{0: 'a'"]
OTHERS = [("task", "fly"), ("task", ""), ("stride", "0"), ("stride", "None"), ("imgsz", "[1]"), ("imgsz", "(-1, 5)")]
OTHERS += [("imgsz", "640000"), ("kpt_shape", "[17, 4]"), ("kpt_shape", "[99999999, 3]")]


@pytest.mark.parametrize(("key", "text"), [*(("names", text) for text in HOSTILE), *OTHERS])
def test_other_texts_are_a_typed_error_that_names_the_entry_and_take_no_time(key: str, text: str) -> None:
    start = process_time()
    with pytest.raises(ModelError, match=f"the entry '{key}.*' of the network's metadata cannot be read"):
        Description.of({key: text})
    assert process_time() - start < 2


def network(folder: Path, **entries: str) -> Path:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, entries)
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def test_a_network_carries_what_decoders_read_and_no_more(tmp_path: Path) -> None:
    path = network(tmp_path, task="detect", names="{0: 'a'}", description="trained on /home/somebody", date="today")
    assert read_onnx(path).metadata == {"task": "detect", "names": "{0: 'a'}"}
    assert FORMAT.metadata([path]) == {"task": "detect", "names": "{0: 'a'}"}


def test_metadata_of_other_programs_keeps_no_network_from_being_built(tmp_path: Path) -> None:
    run = read_onnx(network(tmp_path, task="{" * 1000, names="\x07")).reference
    assert run({"x": np.ones((1, 4), np.float32)})["y"].sum() == 4


def test_more_than_a_manifest_has_room_for_is_left_out() -> None:
    assert metadata.kept([("names", "x" * metadata.MOST_CHARACTERS)])
    assert metadata.kept([("names", "x" * metadata.MOST_CHARACTERS), ("task", "y")]) == {}


def test_the_size_of_images_is_rounded_up_to_whole_strides() -> None:
    decoder = Ultralytics(kind="ultralytics")
    assert decoder.size_of({"imgsz": "[310, 640]", "stride": "32"}) == (320, 640)
    assert decoder.size_of({"imgsz": "416"}) == (416, 416)
    assert decoder.size_of({}) is None
