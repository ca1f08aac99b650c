"""`edgedeploy models import`: a network of one's own becomes an entry that every command knows."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
import yaml
from conftest import Command
from support.networks import Graph

from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.labels import load_labels

pytestmark = pytest.mark.compiles


def detector(path: Path, inputs: tuple[int, ...] = (1, 3, 16, 16), outputs: int = 1000) -> Path:
    """A network that looks like a classifier of images."""
    graph = Graph()
    pooled = graph.node("GlobalAveragePool", graph.conv(graph.input("data", list(inputs)), inputs[1], 8, 3))
    flat = graph.node("Flatten", pooled)
    return graph.save(path, graph.node("Gemm", flat, graph.normal(8, outputs)))


def entries() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "edgedeploy" / "models"


def test_an_imported_network_is_known_by_its_name(command: Command, tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    assert command("models", "import", path, "--name", "mine")[0] == 0
    path.unlink()
    assert command("models", "verify", "mine")[:2] == (0, f"mine: ok, bundled: {entries() / 'mine.onnx'}\n")
    assert command("run", "mine")[0] == 0


def test_what_the_files_do_not_say_is_guessed_and_marked(command: Command, tmp_path: Path) -> None:
    command("models", "import", detector(tmp_path / "net.onnx"), "--name", "mine")
    text = (entries() / "mine.yaml").read_text()
    entry = yaml.safe_load(text)
    assert (entry["task"], entry["labels"]) == ("classification", "imagenet")
    assert entry["input"]["shape"] == [1, 3, 16, 16]
    assert entry["input"]["scale"] == pytest.approx([1 / 255] * 3)
    marked = [line.strip().split(":")[0] for line in text.splitlines() if line.endswith("# guessed")]
    assert marked == ["task", "colour", "mean", "scale", "labels"]


def test_it_says_where_labels_are_stated_and_nothing_else_is_printed(command: Command, tmp_path: Path) -> None:
    path = entries() / "mine.yaml"
    where = (
        f"names of classes go into {entries() / 'labels' / 'mine'}.txt, one a line, and `labels: mine` into the entry"
    )
    for outputs, labels in ((1000, "imagenet, guessed by their number"), (7, "none")):
        network = detector(tmp_path / "net.onnx", outputs=outputs)
        code, out, _ = command("models", "import", network, "--name", "mine", "--force")
        assert code == 0
        assert out.splitlines()[:3] == [f"mine: {path}", "task: classification, guessed", f"labels: {labels}; {where}"]
    (entries() / "labels").mkdir()
    (entries() / "labels" / "mine.txt").write_text("\n".join("abcdefg"))
    path.write_text(path.read_text() + "labels: mine\n")
    assert load_labels(MODELS.load("mine").labels or "") == list("abcdefg")


@pytest.mark.parametrize(
    ("shape", "layout", "colour"),
    [((1, 1, 9, 9), "NCHW", "GRAY"), ((1, 3, 9, 9), "NCHW", "RGB"), ((1, 7), "NCHW", "GRAY")],
)
def test_the_input_tells_layout_and_colour(
    command: Command, tmp_path: Path, shape: tuple[int, ...], layout: str, colour: str
) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input("x", list(shape))))
    assert command("models", "import", path, "--name", "mine")[0] == 0
    stated = yaml.safe_load((entries() / "mine.yaml").read_text())["input"]
    assert (stated["name"], stated["shape"], stated["layout"], stated["colour"]) == ("x", list(shape), layout, colour)


def test_an_image_whose_channels_come_last_is_nhwc(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input("x", [1, 20, 30, 3])))
    command("models", "import", path, "--name", "mine")
    assert yaml.safe_load((entries() / "mine.yaml").read_text())["input"]["layout"] == "NHWC"


def test_weights_in_a_file_of_their_own_come_along(command: Command, tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert command("models", "import", path, "--name", "mine")[0] == 0
    assert sorted(each.name for each in entries().iterdir()) == ["mine.onnx", "mine.yaml", "net.data"]
    path.unlink()
    assert command("build", "mine")[0] == 0


def test_free_dimensions_are_fixed_by_the_command_line(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input("x", [1, 3, "height", "width"])))
    code, _, err = command("models", "import", path, "--name", "mine")
    assert code == 7
    assert "--input-shape x:1,3,224,224" in err
    assert not entries().exists()
    assert command("models", "import", path, "--name", "mine", "--input-shape", "x:1,3,8,8")[0] == 0


def test_a_name_is_replaced_only_on_request(command: Command, tmp_path: Path) -> None:
    first, second = detector(tmp_path / "first.onnx"), detector(tmp_path / "second.onnx", outputs=20)
    command("models", "import", first, "--name", "mine")
    before = (entries() / "mine.onnx").read_bytes()
    code, _, err = command("models", "import", second, "--name", "mine")
    assert code == 7
    assert "--force" in err
    assert (entries() / "mine.onnx").read_bytes() == before
    assert command("models", "import", second, "--name", "mine", "--force")[0] == 0
    assert (entries() / "mine.onnx").read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ["", "../mine", "a/b", ".hidden", "-x y"])
def test_a_name_that_would_lie_elsewhere_is_refused(command: Command, tmp_path: Path, name: str) -> None:
    code, _, err = command("models", "import", detector(tmp_path / "net.onnx"), f"--name={name}")
    assert code == 7
    assert "cannot be a model's name" in err
    assert not entries().exists()


def test_what_is_no_network_leaves_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"MZ" + bytes(100))
    code, _, err = command("models", "import", tmp_path / "net.onnx", "--name", "mine")
    assert code == 5
    assert "is no network" in err
    assert not entries().exists()


def test_two_networks_are_not_one(command: Command, tmp_path: Path) -> None:
    paths = [detector(tmp_path / f"{name}.onnx") for name in ("first", "second")]
    code, _, err = command("models", "import", *paths, "--name", "mine")
    assert code == 5
    assert "not those of one network" in err


def test_a_file_that_belongs_to_no_network_is_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"\xff\xd8\xff")
    code, _, err = command("models", "import", detector(tmp_path / "net.onnx"), tmp_path / "cat.jpg", "--name", "mine")
    assert code == 5
    assert "cat.jpg" in err
    assert not entries().exists()


def test_a_file_that_is_named_twice_counts_once(command: Command, tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    assert command("models", "import", path, path.parent / "." / path.name, "--name", "mine")[0] == 0
    assert [file["name"] for file in yaml.safe_load((entries() / "mine.yaml").read_text())["files"]] == ["mine.onnx"]


def test_weights_outside_of_an_onnx_file_may_be_named_too(command: Command, tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert command("models", "import", tmp_path / "net.data", path, "--name", "mine")[0] == 0
    assert sorted(each.name for each in entries().iterdir()) == ["mine.onnx", "mine.yaml", "net.data"]


def test_a_pipe_is_refused_and_not_waited_for(command: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net.onnx")
    code, _, err = command("models", "import", tmp_path / "net.onnx", "--name", "mine")
    assert code == 5
    assert "it is a pipe" in err


def test_rm_removes_a_network_of_ones_own_with_its_files(command: Command, tmp_path: Path) -> None:
    command("models", "import", detector(tmp_path / "net.onnx"), "--name", "mine")
    code, out, _ = command("models", "rm", "mine")
    assert code == 0
    assert "mine.onnx" in out
    assert list(entries().iterdir()) == []
    assert "unknown model" in command("models", "show", "mine")[2]
