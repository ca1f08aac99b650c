"""`edgedeploy models import`: a network of one's own becomes an entry that every command knows."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import yaml
from conftest import Command
from support.commands import output_of, put, refusal
from support.networks import Graph

from edgedeploy.zoo.entry import MODELS, load_labels

pytestmark = pytest.mark.compiles


def detector(path: Path, inputs: tuple[int, ...] = (1, 3, 16, 16), outputs: int = 1000) -> Path:
    graph = Graph()
    pooled = graph.node("GlobalAveragePool", graph.conv(graph.input("data", list(inputs)), inputs[1], 8, 3))
    return graph.save(path, graph.node("Gemm", graph.node("Flatten", pooled), graph.normal(8, outputs)))


def entries() -> Path:
    return Path(os.environ["XDG_CONFIG_HOME"]) / "edgedeploy" / "models"


def test_an_imported_network_is_known_by_its_name_until_it_is_removed(command: Command, tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    assert command("models", "import", path, "--name", "mine")[0] == 0
    path.unlink()
    assert command("models", "verify", "mine")[:2] == (0, f"mine: ok, bundled: {entries() / 'mine.onnx'}\n")
    assert command("run", "mine")[0] == 0
    assert "mine.onnx" in output_of(command, "models", "rm", "mine")
    assert list(entries().iterdir()) == []
    assert "unknown model" in command("models", "show", "mine")[2]


def test_what_the_files_do_not_say_is_guessed_and_marked(command: Command, tmp_path: Path) -> None:
    command("models", "import", detector(tmp_path / "net.onnx"), "--name", "mine")
    text = (entries() / "mine.yaml").read_text()
    entry = yaml.safe_load(text)
    assert (entry["task"], entry["labels"]) == ("classification", "imagenet")
    assert entry["input"]["shape"] == [1, 3, 16, 16]
    assert entry["input"]["scale"] == pytest.approx([1 / 255] * 3)
    marked = [line.strip().split(":")[0] for line in text.splitlines() if line.endswith("# guessed")]
    assert marked == ["task", "colour", "mean", "scale", "labels"]


def test_what_is_stated_is_not_guessed_and_printed_as_it_is(command: Command, tmp_path: Path) -> None:
    network = detector(tmp_path / "net.onnx", outputs=3)
    hint = "none; --labels FILE takes a file with a class name on each line"
    guesses = [
        f"mine: {entries() / 'mine.yaml'}",
        "task: classification, guessed",
        f"labels: {hint}",
        "of pixels from 0 to 255: mean 0 0 0, scale 0.00392157 0.00392157 0.00392157, guessed",
    ]
    code, out, _ = command("models", "import", network, "--name", "mine")
    assert (code, out.splitlines()[:4]) == (0, guesses)
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    said = ["--task", "face detection", "--labels", tmp_path / "names.txt", "--preset", "imagenet"]
    code, out, _ = command("models", "import", network, "--name", "mine", "--force", *said)
    pixels = "of pixels from 0 to 255: mean 123.675 116.28 103.53, scale 0.0171248 0.017507 0.0174292"
    assert (code, out.splitlines()[1:4]) == (0, ["task: face detection", "labels: mine", pixels])
    text = (entries() / "mine.yaml").read_text()
    assert [line.strip().split(":")[0] for line in text.splitlines() if line.endswith("# guessed")] == ["colour"]
    assert load_labels(MODELS.load("mine").labels or "") == ["cat", "dog", "owl"]
    assert command("models", "rm", "mine")[0] == 0
    assert not list(entries().rglob("*.*"))


@pytest.mark.parametrize(
    ("given", "mean", "scale"),
    [
        (["--mean", "0.5"], [127.5] * 3, [1 / 255] * 3),
        (["--std", "0.25,0.5,1"], [0.0] * 3, [4 / 255, 2 / 255, 1 / 255]),
        (["--mean", "127.5", "--std", "128"], [127.5] * 3, [1 / 128] * 3),
        (["--mean", "1,2,3"], [1.0, 2.0, 3.0], [1.0] * 3),
    ],
    ids=["mean", "deviations", "both of 255", "means of 255"],
)
def test_means_and_deviations_are_of_pixels_to_1_unless_one_exceeds_it(
    command: Command, tmp_path: Path, given: list[str], mean: list[float], scale: list[float]
) -> None:
    said = command("models", "import", detector(tmp_path / "net.onnx"), "--name", "mine", "--json", *given)[1]
    assert [json.loads(said)[name] for name in ("mean", "scale")] == [pytest.approx(mean), pytest.approx(scale)]


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (["--mean", "0.5,0.5"], 7, "--mean needs a value for each channel, or one for all: input 'data' has 3, and 2"),
        (["--mean", "half"], 7, "--mean 'half' is not a list of numbers"),
        (["--std", "nan"], 7, "--std 'nan' is not a list of numbers"),
        (["--std", "1,0,1"], 7, "--std is not above 0"),
        (["--preset", "imagenet", "--std", "1"], 7, "--preset does not go with --mean and --std"),
        (["--preset", "coco"], 2, "imagenet"),
        (["--task", "clasification"], 4, "did you mean classification"),
        (["--labels", "coco"], 7, "it names 80 classes, the network has 1000"),
        (["--labels", "nosuch.txt"], 4, "there is no label file 'nosuch.txt'"),
        # Files of these names would lie elsewhere.
        *(([f"--name={name}"], 7, "cannot be a model's name") for name in ("", "../mine", "a/b", ".hidden", "-x y")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_impossible_input_is_refused(command: Command, tmp_path: Path, given: list[str], code: int, said: str) -> None:
    network = detector(tmp_path / "net.onnx")
    assert said in refusal(command, code, "models", "import", network, "--name", "mine", *given)
    assert not entries().exists()


@pytest.mark.parametrize(
    ("shape", "layout", "colour"),
    [
        ((1, 1, 9, 9), "NCHW", "GRAY"),
        ((1, 3, 9, 9), "NCHW", "RGB"),
        ((1, 20, 30, 3), "NHWC", "RGB"),
        ((1, 7), "NCHW", "GRAY"),
    ],
)
def test_layout_and_colour(command: Command, tmp_path: Path, shape: tuple[int, ...], layout: str, colour: str) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input("x", list(shape))))
    assert command("models", "import", path, "--name", "mine")[0] == 0
    stated = yaml.safe_load((entries() / "mine.yaml").read_text())["input"]
    assert (stated["name"], stated["shape"], stated["layout"], stated["colour"]) == ("x", list(shape), layout, colour)


@pytest.mark.parametrize("named", [["net.onnx"], ["net.data", "net.onnx"]], ids=["not named", "named too"])
def test_weights_in_a_file_of_their_own_come_along(command: Command, tmp_path: Path, named: list[str]) -> None:
    path = detector(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.data", size_threshold=0)
    assert command("models", "import", *(tmp_path / each for each in named), "--name", "mine")[0] == 0
    assert sorted(each.name for each in entries().iterdir()) == ["mine.onnx", "mine.yaml", "net.data"]
    path.unlink()
    assert command("build", "mine")[0] == 0


def test_free_dimensions_are_fixed_by_the_command_line(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.input("x", [1, 3, "height", "width"])))
    assert "--input-shape x:1,3,224,224" in refusal(command, 7, "models", "import", path, "--name", "mine")
    assert not entries().exists()
    assert command("models", "import", path, "--name", "mine", "--input-shape", "x:1,3,8,8")[0] == 0


def test_a_name_is_replaced_only_on_request(command: Command, tmp_path: Path) -> None:
    first, second = detector(tmp_path / "first.onnx"), detector(tmp_path / "second.onnx", outputs=20)
    command("models", "import", first, "--name", "mine")
    before = (entries() / "mine.onnx").read_bytes()
    assert "--force" in refusal(command, 7, "models", "import", second, "--name", "mine")
    assert (entries() / "mine.onnx").read_bytes() == before
    assert command("models", "import", second, "--name", "mine", "--force")[0] == 0
    assert (entries() / "mine.onnx").read_bytes() == second.read_bytes()


UNSUITABLE: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "no network": (lambda folder: [put(folder / "net.onnx", b"MZ" + bytes(100))], "is not a network"),
    "two networks": (lambda folder: [detector(folder / f"{n}.onnx") for n in (1, 2)], "not those of one network"),
    "a network and a picture": (
        lambda folder: [detector(folder / "net.onnx"), put(folder / "cat.jpg", b"\xff\xd8\xff")],
        "cat.jpg",
    ),
    "a pipe": (lambda folder: [os.mkfifo(folder / "net.onnx") or folder / "net.onnx"], "it is a pipe"),
}


@pytest.mark.parametrize(("write", "said"), UNSUITABLE.values(), ids=UNSUITABLE)
def test_files_of_no_network_are_refused(
    command: Command, tmp_path: Path, write: Callable[[Path], list[Path]], said: str
) -> None:
    assert said in refusal(command, 5, "models", "import", *write(tmp_path), "--name", "mine")
    assert not entries().exists()


def test_a_file_that_is_named_twice_counts_once(command: Command, tmp_path: Path) -> None:
    path = detector(tmp_path / "net.onnx")
    assert command("models", "import", path, path.parent / "." / path.name, "--name", "mine")[0] == 0
    assert [file["name"] for file in yaml.safe_load((entries() / "mine.yaml").read_text())["files"]] == ["mine.onnx"]
