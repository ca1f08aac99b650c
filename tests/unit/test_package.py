"""Package archives: reproducible when written, never trusted when read, and used as they say."""

import gc
import gzip
import json
import os
import re
import sys
import tarfile
import weakref
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from pydantic import BaseModel, ValidationError
from support.agents import answer, call, request, unpack
from support.agreement import run_onnx
from support.archives import add, bomb, entry, header
from support.commands import json_of, output_of, printed, put, refusal, refused_alone
from support.networks import Graph, tiny
from support.packages import CONTENTS, FILE_NAMES, UNSOUND, changed, document, files_with, manifest, packed
from support.tflite_networks import small

from edgedeploy.build_key import build_key
from edgedeploy.building import build, prepare
from edgedeploy.cli.options import parse_batches, parse_entries, parse_shapes
from edgedeploy.demo.program import Detector, Program, look_of
from edgedeploy.demo.spec import DEMOS
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import InputError, NumericalError, PackageError, UnsupportedError
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.model.heads import Head
from edgedeploy.model.metadata import ENTRY
from edgedeploy.model.tensors import Steps, TensorSpec
from edgedeploy.package.archive import manifest_bytes, read_manifest, read_package, write_package
from edgedeploy.package.entry import Case, Entry
from edgedeploy.package.manifest import Manifest, packageable, parse_manifest
from edgedeploy.runtime.opening import Place
from edgedeploy.runtime.session import Session
from edgedeploy.selftest.checking import _error
from edgedeploy.selftest.tolerance import Recorded
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.vision.source import Shot
from edgedeploy.zoo.source import find_source


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    write_package(tmp_path / "sound.tar.gz", manifest(), CONTENTS)
    return tmp_path / "sound.tar.gz"


def test_what_is_written_is_read(sound: Path) -> None:
    assert read_package(sound) == (manifest(), CONTENTS)
    assert read_manifest(sound) == manifest()


def test_a_quantised_tensor_is_read_with_its_steps() -> None:
    spec = TensorSpec(name="x", shape=[16], dtype="int8", steps=Steps(scale=0.5, zero_point=-3))
    assert TensorSpec.model_validate_json(spec.model_dump_json()) == spec


def test_equal_contents_give_equal_bytes(sound: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.tar.gz"
    write_package(second, manifest(), dict(reversed(CONTENTS.items())))
    assert sound.read_bytes() == second.read_bytes()


def test_names_no_owner_and_no_time(sound: Path) -> None:
    with tarfile.open(sound) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == ["manifest.json", *sorted(CONTENTS)]
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}


def assert_unsound(path: Path, command: Command, what: str) -> None:
    """Neither the function nor the command takes a file for a package, and nothing of it is shown."""
    with pytest.raises(PackageError, match="not a sound package"):
        read_package(path)
    assert "not a sound package" in refused_alone(command, 8, "package", what, path)


def add_all(archive: tarfile.TarFile, contents: dict[str, bytes] = CONTENTS) -> None:
    add(archive, "manifest.json", manifest_bytes(manifest()))
    for name, content in contents.items():
        add(archive, name, content)


HOSTILE: dict[str, Callable[[tarfile.TarFile], None]] = {
    "an absolute name": lambda archive: (add_all(archive), add(archive, "/etc/passwd", b"x"))[1],
    "a name that climbs out": lambda archive: (add_all(archive), add(archive, "../escape", b"x"))[1],
    "a symbolic link": lambda archive: (add_all(archive), add(archive, "model.so", kind=tarfile.SYMTYPE))[1],
    "a hard link": lambda archive: (add_all(archive), add(archive, "a", kind=tarfile.LNKTYPE))[1],
    "a device": lambda archive: (add_all(archive), add(archive, "sda", kind=tarfile.BLKTYPE))[1],
    "a character device": lambda archive: (add_all(archive), add(archive, "zero", kind=tarfile.CHRTYPE))[1],
    "a pipe": lambda archive: (add_all(archive), add(archive, "pipe", kind=tarfile.FIFOTYPE))[1],
    "a sparse file": lambda archive: (add_all(archive), add(archive, "hole", kind=tarfile.GNUTYPE_SPARSE))[1],
    "a folder": lambda archive: (add_all(archive), add(archive, "selftest", kind=tarfile.DIRTYPE))[1],
    "a member twice": lambda archive: (add_all(archive), add(archive, "model.so", CONTENTS["model.so"]))[1],
    "a changed member": lambda archive: add_all(archive, {**CONTENTS, "model.so": b"evil" * 1000}),
    "a longer member": lambda archive: add_all(archive, {**CONTENTS, "model.so": b"code" * 1001}),
    "a missing member": lambda archive: add_all(archive, {"model.so": CONTENTS["model.so"]}),
    "no manifest": lambda archive: add(archive, "model.so", b"code"),
    "a manifest that is no JSON": lambda archive: add(archive, "manifest.json", b"{"),
    "a manifest of another form": lambda archive: add(archive, "manifest.json", b"{}"),
    "nothing": lambda archive: None,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_refuses_an_archive_with(what: str, tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        HOSTILE[what](archive)
    assert_unsound(path, command, "verify")


def claiming(sizes: dict[str, int]) -> bytes:
    """A manifest at the begin of an archive, with files of these sizes beside the others."""
    claims = {name: {"size": size, "sha256": "0" * 64} for name, size in sizes.items()}
    return entry(b"manifest.json", changed("files", {**document()["files"], **claims}))


BOMBS = {
    "a long name": header(b"x", 3 << 30, kind=b"L"),
    "an extended header": header(b"x", 3 << 30, kind=b"x"),
    "a huge manifest": header(b"manifest.json", 3 << 30),
    "a manifest that is larger than it says": entry(b"manifest.json", manifest_bytes(manifest())),
    "a file that is larger than the manifest says": claiming({}) + header(b"model.so", 3 << 30),
    "a file that is as large as the manifest says": claiming({"model.so": 3 << 30}) + header(b"model.so", 3 << 30),
    "files that are too large together": claiming({f"f{i}": 1 << 30 for i in range(3)}) + header(b"f0", 1 << 30),
    "a manifest of many faults": entry(b"manifest.json", changed("inputs", [1] * 150_000)),
    "a manifest of many faulty fields": entry(b"manifest.json", changed("inputs", [{}] * 150_000)),
    "a manifest of many files": entry(b"manifest.json", changed("files", {str(i): 1 for i in range(50_000)})),
    "a manifest of many lists": entry(b"manifest.json", changed("target", {str(i): [[]] for i in range(50_000)})),
}

VERDICTS = """
import json, sys
from pathlib import Path
from typing import Any
from support.archives import peak_bytes
from edgedeploy.building import build
from edgedeploy.errors import PackageError
from edgedeploy.package.archive import read_package

print(peak_bytes())
for path in sys.argv[2:]:
    try:
        read_package(Path(path), keep=None if sys.argv[1] == "all" else ())
        print(peak_bytes())
    except PackageError as error:
        print(peak_bytes(), error.cause)
"""


def verdicts(keep: str, paths: list[Path]) -> list[tuple[int, str]]:
    """What a process of its own says of packages, and by how much the most memory that it had has grown then."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    said = printed(sys.executable, "-c", VERDICTS, keep, *paths, timeout=120, env=environment)
    first, *lines = [line.partition(" ") for line in said.splitlines()]
    return [(int(peak) - int(first[0]), why) for peak, _, why in lines]


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    paths = [bomb(tmp_path / name, begin, 3072) for name, begin in BOMBS.items()]
    assert max(path.stat().st_size for path in paths) < 4 << 20
    for path, (peak, why) in zip(paths, verdicts("all", paths), strict=True):
        assert "not a sound package" in why, path.name
        assert peak < 128 << 20, path.name
        assert path.name != "a huge manifest" or "it has 3,221,225,472 bytes, more than the 1,048,576" in why


def test_a_sound_package_takes_its_size_of_memory_and_to_verify_it_none(tmp_path: Path) -> None:
    """The zeros of a network that compress to next to nothing are a network all the same."""
    contents = {**CONTENTS, "model.so": bytes(128 << 20)}
    write_package(tmp_path / "net.tar.gz", manifest(contents), contents)
    [(peak, why)] = verdicts("all", [tmp_path / "net.tar.gz"])
    assert (why, peak < 160 << 20) == ("", True)
    [(peak, why)] = verdicts("nothing", [tmp_path / "net.tar.gz"])
    assert (why, peak < 16 << 20) == ("", True)


def test_says_of_a_sound_package_what_it_is(sound: Path, command: Command) -> None:
    assert "is sound: net for local, 3 files, 4,024 bytes" in command("package", "verify", sound)[1]
    assert json_of(command, "package", "verify", sound)[0]["model"] == "net"


def test_shows_what_a_package_is_for_and_what_it_needs(sound: Path, command: Command) -> None:
    out = output_of(command, "package", "show", sound)
    rows = {line[:15].strip(): line[15:].strip() for line in out.splitlines() if line[:1].strip()}
    assert rows["model"] == "net"
    assert rows["threads"] == str(manifest().threads)
    assert manifest().linker in rows["linked by"]
    assert "model.so  4,000 bytes" in out
    assert json_of(command, "package", "show", sound) == manifest().model_dump(mode="json", by_alias=True)


def test_shows_what_the_networks_file_says_of_its_heads(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "net.tar.gz"
    heads = [Head(output="yolo_9", anchors=[(1, 2), (3, 4)], classes=80), Head(output="last", anchors=[(5, 6)])]
    write_package(path, manifest().model_copy(update={"heads": heads}), CONTENTS)
    out = command("package", "show", path)[1]
    assert "yolo_9  yolo, 2 anchors of 80 classes" in out
    assert "last  yolo, 1 anchors" in out


@pytest.mark.parametrize(("name", "shown"), [("", "."), ("/", "/")])
def test_a_folder_is_said_to_be_none(command: Command, name: str, shown: str) -> None:
    for what in ("show", "verify"):
        assert f"error: {shown} is a folder, not a package\n" in refused_alone(command, 8, "package", what, name)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_refuses_a_truncated_file(share: float, sound: Path) -> None:
    sound.write_bytes(sound.read_bytes()[: int(sound.stat().st_size * share)])
    with pytest.raises(PackageError):
        read_package(sound)


@pytest.mark.parametrize(
    "content", [b"", b"text", gzip.compress(b"not a tar archive" * 100)], ids=["nothing", "text", "gzip of text"]
)
def test_refuses_what_is_no_archive_and_shows_nothing_of_it(content: bytes, tmp_path: Path, command: Command) -> None:
    path = put(tmp_path / "net.tar.gz", content)
    assert_unsound(path, command, "show")


@pytest.mark.parametrize("what", UNSOUND)
def test_refuses_a_manifest_with(what: str, tmp_path: Path, command: Command) -> None:
    field, value, why = UNSOUND[what]
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": changed(field, value), **CONTENTS})
    err = refused_alone(command, 8, "package", "verify", path)
    assert why in " ".join(err.split())


@pytest.mark.parametrize("name", FILE_NAMES)
def test_refuses_a_file_that_no_board_could_have_beside_the_others(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": changed("files", files_with(name))})
    for read in (read_manifest, read_package):
        with pytest.raises(PackageError, match=re.escape(FILE_NAMES[name])):
            read(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"threads": 1, %s', "a field is given twice"),
        ('{"threads": 1e999, %s', "1e999 is not a number"),
        ('{"threads": 1%s, %%s' % ("0" * 400), "is not a number"),
        ('{"a": ' + "[" * 100_000 + ", %s", "nested too deeply"),
        ('{"a": "\\ud800", %s', "manifest.json: (document): Invalid JSON"),
        ("\ufeff{%s", "manifest.json"),
        ('{"unknown": 1, %s', "unknown: there is no such field"),
    ],
    ids=["a field twice", "a huge number", "a long number", "depth", "half a letter", "a mark", "an unknown field"],
)
def test_refuses_json_that_others_would_read_in_another_way(text: str, why: str, tmp_path: Path) -> None:
    content = (text % manifest_bytes(manifest()).decode().lstrip()[1:]).encode()
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": content, **CONTENTS})
    with pytest.raises(PackageError, match=re.escape(why)):
        read_package(path)


def test_files_that_are_too_large_together_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    files = document()["files"]
    files |= {f"f{i}": {"size": 400 << 20, "sha256": "0" * 64} for i in range(3)}
    path = packed(tmp_path / "net.tar.gz", {"manifest.json": changed("files", files)})
    for read in (read_manifest, read_package):
        with pytest.raises(PackageError, match="it holds 1,258,295,224 bytes"):
            read(path)


@pytest.mark.parametrize(
    ("part", "fields", "why"),
    [
        (Manifest, {**document(), "model": "../x"}, "model: must match"),
        (Case, {**document()["selftest"]["cases"][0], "absolute": float("inf")}, "absolute: must be a finite"),
    ],
)
def test_what_no_package_can_hold_is_said_of_the_network(part: type[BaseModel], fields: Any, why: str) -> None:
    with pytest.raises(UnsupportedError, match=f"no package can hold net: {why}"), packageable("net"):
        part.model_validate(fields)


def test_faults_of_other_things_are_not_said_of_the_network() -> None:
    with pytest.raises(ValidationError), packageable("net"):
        Head.model_validate({})


# Of ResNet-18 for ImageNet in float32, whose file in ONNX's model zoo has 46,820,737.
PARAMETERS = 11_689_512


@pytest.mark.slow
@pytest.mark.compiles
@pytest.mark.parametrize("board", ["rpi4", "rpi5"])
def test_an_archive_has_at_most_1_1_times_the_bytes_of_the_weights(tmp_path: Path, board: str) -> None:
    source = find_source("resnet18", options=ImportOptions(weights="random"))
    built = build(source, resolve(board, {"precision": "single"}), tmp_path / "net.tar.gz", checks="none")
    assert built.path.stat().st_size <= 1.1 * 4 * PARAMETERS
    assert built.manifest.memory.constants_bytes > 3 * 4 * PARAMETERS  # what Winograd's convolutions make of them


# How a package says that its network is used; by that alone it detects what the demos detect.


@pytest.mark.compiles
def test_a_package_alone_detects_what_its_demo_does() -> None:
    program = Program.of("digits")
    shot = Shot(0, program.image(), read_image(program.image()))
    with program.opened(Place(resolve("local"))) as session:
        wanted = session.infer(shot).outcome.detections
    package = prepare("digits", resolve("local"), use=find_use("digits")).package_path
    assert Detector(package).detect(shot.image) == wanted
    assert len(wanted) == 5


@pytest.mark.parametrize("name", [name for name in DEMOS.names() if name != "yolo"])
def test_what_is_written_of_a_demo_is_read_as_the_same_decoder_and_fit(name: str) -> None:
    for stage in DEMOS.load(name).stages:
        try:
            use = find_use(stage.model, name)
        except Exception as error:  # a network of the user's own
            assert "of your own" in str(error)  # noqa: PT017
            continue
        manifest = parse_manifest(changed("usage", use.usage.model_dump(mode="json")))
        read = look_of(manifest, Path("net.tar.gz"))
        assert (read.stage.decoder, read.stage.fit) == (stage.decoder, stage.fit)
        assert (read.labels, list(read.outputs)) == (use.part.labels, list(use.part.outputs))
        assert stage.log in (read.stage.log, None)


def test_a_file_that_was_quantised_of_a_network_is_used_as_that_is(tmp_path: Path) -> None:
    model = onnx.load(find_source("digits").file)
    onnx.helper.set_model_props(model, {ENTRY: "digits"})  # as `edgedeploy quantize` writes it
    onnx.save(model, tmp_path / "smaller.onnx")
    use = find_use(str(tmp_path / "smaller.onnx"))
    assert (use.demo, use.part.model, use.asked) == ("digits", str(tmp_path / "smaller.onnx"), False)
    assert use.usage == find_use("digits").usage
    onnx.helper.set_model_props(model, {ENTRY: "of another zoo"})
    onnx.save(model, tmp_path / "other.onnx")
    assert find_use(str(tmp_path / "other.onnx")) is None


def test_the_use_is_that_of_a_demo_with_no_other_network() -> None:
    assert (find_use("retinaface").demo, find_use("retinaface").number) == ("retinaface", 1)
    assert (find_use("landmark-106", "facepipe").usage.stage) == 2
    assert find_use("mobilenet_v1").usage.decoder["kind"] == "classification"
    assert find_use("silero-vad") is None


def test_the_use_is_part_of_the_build_key() -> None:
    source, board, use = find_source("digits"), load_board("local"), find_use("digits")
    other = use.usage.model_copy(update={"labels": ["nought"]})
    assert len({build_key(source, board, usage=usage) for usage in (None, use.usage, other)}) == 3


@pytest.mark.compiles
def test_a_network_of_another_shape_than_a_demo_takes_has_no_use(command: Command, tmp_path: Path) -> None:
    output_of(command, "build", "digits", "--batch", "2", "--output", "two")
    assert read_manifest(Path("two/digits.tar.gz")).usage is None
    with pytest.raises(InputError, match="does not say how images become its input"):
        Detector(Path("two/digits.tar.gz"))
    err = refusal(command, 7, "build", "digits", "--batch", "2", "--demo", "digits")
    assert "is not an image as this demo makes it" in err
    path = tiny(tmp_path / "net.onnx")
    assert "the network's input" in refusal(command, 7, "build", path, "--demo", "digits")
    output_of(command, "build", path)
    assert read_manifest(Path("dist/local/net.tar.gz")).usage is None


@pytest.mark.compiles
def test_show_states_the_use_of_a_package(command: Command) -> None:
    output_of(command, "build", "digits")
    show = ("package", "show", "dist/local/digits.tar.gz")
    shown = " ".join(output_of(command, *show).split())
    assert "as of the demo digits" in shown
    assert "images: stretch, GRAY, NCHW, less 0, times 0.00392157 results: classification" in shown
    usage = json.loads(output_of(command, *show, "--json"))["usage"]
    assert usage["decoder"] == {"kind": "classification", "top": 5}


@pytest.mark.compiles
@pytest.mark.cold_cache
def test_classes_do_not_get_others_names(command: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The demo's own network has a thousand, this one eight."""
    output_of(command, "build", tiny(tmp_path / "net.onnx"), "--demo", "classification")
    assert "net.onnx gives 8 classes, and the demo has names of 1000: numbers are shown" in caplog.text
    assert read_manifest(Path("dist/local/net.tar.gz")).usage.labels == []


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("decoder", {"top": 5}, "it has no kind"),
        ("fit", {"kind": [[[[[[[[[1]]]]]]]]]}, "it has no kind"),
        ("decoder", {"kind": "classification", "top": [[[[[[[[[1]]]]]]]]]}, "nested too deeply"),
        ("stage", 0, "above 0"),
        ("surplus", 1, "there is no such field"),
    ],
)
def test_a_use_that_makes_no_sense_is_refused(field: str, value: Any, why: str) -> None:
    usage = find_use("digits").usage.model_dump(mode="json")
    with pytest.raises(ValueError, match=why):
        parse_manifest(changed("usage", {**usage, field: value}))


def test_a_package_of_a_later_decoder_can_be_read_but_not_be_used_here() -> None:
    usage = {**find_use("digits").usage.model_dump(mode="json"), "decoder": {"kind": "of-tomorrow"}}
    found = parse_manifest(changed("usage", usage))
    with pytest.raises(InputError, match="does not know") as raised:
        look_of(found, Path("net.tar.gz"))
    assert "of-tomorrow" in str(raised.value.why)


# Packages with several entry points: one set of weights, several shapes of the inputs.


SHAPES = [(1, 3, 8, 8), (4, 3, 8, 8), (1, 3, 12, 12), (4, 3, 12, 12)]


def image(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).random(shape, dtype=np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer whose packed weights are the same for every size of the image, and one that is not."""
    graph = Graph()
    relu = graph.node("Relu", graph.conv(graph.input("x", ["n", 3, "h", "w"]), 3, 8, 3, pads=[1, 1, 1, 1]))
    mean = graph.node("Flatten", graph.node("GlobalAveragePool", relu))
    return graph.save(tmp_path_factory.mktemp("net") / "net.onnx", graph.node("MatMul", mean, graph.normal(8, 4000)))


@pytest.fixture(scope="module")
def package(network: Path) -> Path:
    source = find_source(str(network), {"x": [1, 3, 8, 8]}).with_further([{"x": [1, 3, 12, 12]}], [1, 4])
    return build(source, resolve("local", {}), network.with_name("net.tar.gz")).path


@pytest.mark.compiles
def test_each_entry_gives_what_onnxruntime_gives(network: Path, package: Path) -> None:
    session = Session.open(package)
    assert [tuple(each.inputs[0].shape) for each in session.of_each_entry()] == SHAPES
    for shape in SHAPES:
        [found] = session.run({"x": image(shape)}).values()
        [wanted] = run_onnx(network, image(shape)).values()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        fitting = session.fitting({"x": image(shape)})
        assert fitting.measure({"x": image(shape)}).min_ms > 0
        assert fitting.function_times({"x": image(shape)})


@pytest.mark.compiles
def test_threads_end_with_the_last_session_of_an_entry(package: Path) -> None:
    """Without the collector's help: nothing holds in a circle what has threads."""
    gc.disable()
    try:
        session = Session.open(package, 2)
        session.run({"x": image(SHAPES[1])})
        last = session.of_each_entry()[1]
        whole = weakref.ref(session)
        del session
        assert whole() is not None
        last.run({"x": image(SHAPES[1])})
        del last
        assert whole() is None
    finally:
        gc.enable()


@pytest.mark.compiles
def test_equal_weights_are_in_the_library_once(network: Path, package: Path, tmp_path: Path) -> None:
    source, board = find_source(str(network), {"x": [1, 3, 8, 8]}), resolve("local", {})
    two = build(source.with_further([{"x": [1, 3, 12, 12]}]), board, tmp_path / "two.tar.gz").manifest
    weights = 8 * 4000 * 4
    assert weights <= two.memory.constants_bytes < 1.5 * weights
    alone = build(source, board, tmp_path / "one.tar.gz").manifest
    assert two.files["model.so"].size - alone.files["model.so"].size < weights


@pytest.mark.compiles
def test_shapes_that_no_entry_takes_are_refused_with_those_that_exist(package: Path) -> None:
    with pytest.raises(InputError, match="the package has no entry for x 2x3x8x8") as raised:
        Session.open(package).run({"x": image((2, 3, 8, 8))})
    assert "x 1x3x8x8; x 4x3x8x8; x 1x3x12x12" in str(raised.value.why)
    with pytest.raises(InputError, match="unknown input 'y'"):
        Session.open(package).run({"y": image((1, 3, 8, 8))})


@pytest.mark.compiles
def test_the_self_test_covers_each_entry(package: Path) -> None:
    found = read_manifest(package)
    folder = unpack(package, package.parent / "unpacked")
    cases = [{case.name: recorded(folder, entry, case) for case in entry.selftest.cases} for entry in found.entries]
    contents = {"model.so": (folder / "model.so").read_bytes()}
    assert _error(found, contents, cases) <= 1
    for array in cases[-1]["random"].outputs.values():
        array += 1
    with pytest.raises(NumericalError, match="gives other outputs"):
        _error(found, contents, cases)


def recorded(folder: Path, entry: Entry, case: Case) -> Recorded:
    def read(specs: list[TensorSpec], names: list[str]) -> dict[str, np.ndarray]:
        files = zip(specs, names, strict=True)
        return {spec.name: np.fromfile(folder / name, spec.dtype).reshape(spec.shape) for spec, name in files}

    return Recorded(read(entry.inputs, case.inputs), read(entry.outputs, case.outputs), {})


@pytest.mark.compiles
def test_the_agent_runs_each_entry(agent: Path, package: Path, tmp_path: Path) -> None:
    folder = unpack(package, tmp_path / "net")
    tested = answer(agent, "selftest", folder)
    assert tested["passed"]
    assert {output["function"] for output in tested["outputs"]} == {"main", "main_1", "main_2", "main_3"}
    shape = SHAPES[3]
    image(shape).tofile(tmp_path / "x.bin")
    answer(agent, "run", folder, "--entry", "3", "--input", f"x={tmp_path / 'x.bin'}", "--output-dir", tmp_path / "out")
    [wanted] = Session.open(package).run({"x": image(shape)}).values()
    np.testing.assert_array_equal(np.fromfile(tmp_path / "out" / "output-0.bin", np.float32), wanted.ravel())
    first = image(SHAPES[0])
    asked = request("run", image(shape).tobytes(), entry=3) + request("run", first.tobytes())
    asked += request("run", b"", entry=4) + request("run", b"", entry=-1)
    said = BytesIO(call(agent, "serve", folder, stdin=asked).stdout)
    further = json.loads(said.readline())["further"]
    assert [entry["inputs"][0]["shape"] for entry in further] == [list(each) for each in SHAPES[1:]]
    [wanted_first] = Session.open(package).run({"x": first}).values()
    for output in (wanted, wanted_first):
        assert json.loads(said.readline())["bytes"] == output.nbytes
        np.testing.assert_array_equal(np.frombuffer(said.read(output.nbytes), np.float32), output.ravel())
    assert [json.loads(line)["error"] for line in said] == ["entry is out of range"] * 2


@pytest.mark.compiles
def test_the_command_takes_the_entry_that_fits(network: Path, command: Command) -> None:
    np.savez("in.npz", x=image((4, 3, 8, 8)))
    out = output_of(command, "run", network, "--input-shape", "x:1,3,8,8", "--batch", "1,4", "-i", "in.npz", "--json")
    assert json.loads(out)["outputs"][0]["shape"] == [4, 4000]


@pytest.mark.compiles
def test_package_show_lists_the_entries(package: Path, command: Command) -> None:
    out = output_of(command, "package", "show", package)
    assert "inputs, shape 2" in out
    assert "float32 [4, 3, 12, 12]" in out


def test_the_second_shape_of_an_input_belongs_to_the_second_entry() -> None:
    assert parse_entries(["a:1,2", "b:3", "a:4,5"]) == [{"a": [1, 2], "b": [3]}, {"a": [4, 5], "b": [3]}]
    assert parse_entries(None) == [{}]
    with pytest.raises(InputError, match="different numbers of shapes"):
        parse_entries(["a:1", "a:2", "b:1", "b:2", "b:3"])
    with pytest.raises(InputError, match="takes one shape for an input"):
        parse_shapes(["a:1", "a:2"])


def test_duplicate_or_too_many_shapes_are_refused_before_anything_is_built(network: Path, tmp_path: Path) -> None:
    source = find_source(str(network), {"x": [1, 3, 8, 8]})
    with pytest.raises(InputError, match="two entries have the same shapes"):
        source.with_further([{"x": [1, 3, 12, 12]}, {"x": [1, 3, 8, 8]}])
    with pytest.raises(InputError, match="two entries have the same shapes"):
        source.with_further([{"x": [4, 3, 8, 8]}], [1])
    with pytest.raises(UnsupportedError, match="a package cannot hold 33 shapes: the maximum is 32"):
        build(source.with_further([], range(1, 34)), resolve("local", {}), tmp_path / "net.tar.gz")


def test_batches_are_numbers_from_one() -> None:
    assert parse_batches("1,4") == [1, 4]
    assert parse_batches(None) == []
    for wrong in ("0", "1,x", "2,2", "1,"):
        with pytest.raises(InputError, match="not a list of batch sizes"):
            parse_batches(wrong)


def test_files_that_fix_their_shapes_have_one_batch(tmp_path: Path) -> None:
    path = put(tmp_path / "net.tflite", small())
    with pytest.raises(InputError, match="has one batch size"):
        find_source(str(path)).with_further([], [1, 4])


def test_packages_of_other_shapes_have_other_keys(tmp_path: Path) -> None:
    source, board = find_source(str(tiny(tmp_path / "net.onnx"))), load_board("local")
    assert build_key(source, board) != build_key(source.with_further([{"data": [1, 3, 9, 9]}]), board)


def _entry(**fields: object) -> dict[str, object]:
    first = {field: document()[field] for field in ("inputs", "outputs", "selftest")}
    return {"function": "main_1", **first, **fields}


UNSOUND_ENTRIES = {
    "two entries of one function": ([_entry(), _entry()], "two entries have one function"),
    "a function that is none of ours": ([_entry(function="system")], "function: must match"),
    "the first function again": ([_entry(function="main")], "two entries have one function"),
    "inputs without a test": ([_entry(inputs=[])], "another number of tensors"),
    "a tail that is not there": (
        [_entry(tail={"file": "tail.json", "outputs": [{"name": "y", "shape": [-1], "dtype": "float32"}]})],
        "files does not list tail.json",
    ),
    "too many": ([_entry(function=f"main_{place}") for place in range(1, 40)], "at most 31 items"),
}


@pytest.mark.parametrize(("further", "said"), UNSOUND_ENTRIES.values(), ids=UNSOUND_ENTRIES)
def test_unsound_entries_are_refused(further: list[dict[str, object]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_manifest(changed("further", further))
