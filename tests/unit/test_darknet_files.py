"""Darknet's cfg files and weights: what they state and compute, and what is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from support.agreement import OnnxruntimeRunner, outputs_of, run_onnx
from support.commands import put
from support.darknet_interpreter import FUNCTIONS, Recorder, interpret
from support.fuzzing import damaged, damaged_text, peak_of, survive

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.errors import InputError, ModelError
from edgedeploy.frontends.darknet import FORMAT
from edgedeploy.frontends.format import Converted, ImportOptions
from edgedeploy.frontends.formats import describing
from edgedeploy.model.heads import Head
from edgedeploy.target.board import load_board

NET = "[net]\nwidth=8\nheight=8\nchannels=3\n"
CONV = "[convolutional]\nbatch_normalize=1\nfilters=4\nsize=3\npad=1\nactivation=leaky\n"
WIDE = CONV.replace("filters=4", "filters=32")
NARROW = WIDE.replace("leaky", "linear").replace("size=3\npad=1\n", "")
RESIDUAL = WIDE + NARROW + "[shortcut]\nfrom=-3\nactivation=leaky\n"
RANDOM = ImportOptions(weights="random")


def cfg(folder: Path, text: str) -> Path:
    return put(folder / "net.cfg", text)


def architecture(folder: Path, text: str) -> Converted:
    """A network without its weights."""
    return FORMAT.convert([cfg(folder, text)], {}, RANDOM)


def refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        architecture(folder, text)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape or (1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    "text",
    [
        *("[net]\n", "[network]\n", "\ufeff[net]\n"),
        *("# a comment\n\n; another\n  [net]\n", "\r\n# from Windows\r\n[net]\r\n"),
    ],
)
def test_a_cfg_file_is_known_by_its_first_section(text: str, tmp_path: Path) -> None:
    path = put(tmp_path / "any.name", (text + "width=8\n").encode())
    assert describing(path) == (FORMAT, path)


@pytest.mark.parametrize("text", ["[section]\n[net]\n", "# [net]\n", "x=1\n[net]\n", "[netting]\n"])
def test_other_text_is_no_cfg_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a network of a known format"):
        describing(cfg(tmp_path, text))


def test_the_weights_name_the_network_too(tmp_path: Path) -> None:
    path = cfg(tmp_path, NET + CONV)
    weights = path.with_suffix(".weights")
    weights.write_bytes(bytes(20))
    assert describing(weights) == (FORMAT, path)
    assert FORMAT.files(path) == [path, weights]


def test_weights_alone_say_what_they_lack(tmp_path: Path) -> None:
    weights = put(tmp_path / "net.weights", bytes(20))
    with pytest.raises(ModelError, match=r"does not describe a network.*Darknet.*net\.cfg") as raised:
        describing(weights)
    assert any("models import" in hint for hint in raised.value.hints)


def test_files_whose_names_were_swapped_are_not_taken_for_each_other(tmp_path: Path) -> None:
    swapped = cfg(tmp_path, NET + CONV).rename(tmp_path / "net.weights")
    with pytest.raises(ModelError, match="but has the name of its weights"):
        FORMAT.files(swapped)


def test_blanks_comments_and_options_of_training_do_not_count(tmp_path: Path) -> None:
    plain = architecture(tmp_path, NET + CONV)
    text = (
        "# trained on something\n[net]\nbatch = 64\nwidth = 8 # pixels\n height=8\nchannels\t=3\nsteps = 1,2\nhue=.1\n"
        "policy=\n\n[convolutional]\nbatch_normalize = 1\nfilters= 4;four\nfilters=9\nsize=3\npad=1\n"
        "activation=le aky\nlearning_rate=0.1\nstopbackward=1\n"
    )
    assert architecture(tmp_path, text).model == plain.model


def test_nodes_and_outputs_are_named_after_sections_and_their_numbers(tmp_path: Path) -> None:
    graph = architecture(tmp_path, NET + CONV + "[dropout]\n" + CONV + "[maxpool]\nsize=2\nstride=2\n").model.graph
    names = [node.name for node in graph.node]
    assert names[:3] == ["convolutional_0_linear_raw", "convolutional_0_linear", "convolutional_0"]
    assert names[3:] == ["convolutional_2_linear_raw", "convolutional_2_linear", "convolutional_2", "maxpool_3"]
    assert [value.name for value in graph.input] == ["data"]
    assert [value.name for value in graph.output] == ["maxpool_3"]


@pytest.mark.parametrize(
    ("ending", "name"),
    [("[dropout]\n", "dropout_1"), ("[cost]\n", "convolutional_0"), ("[soft]\n[cost]\n", "softmax_1")],
)
def test_without_heads_the_last_layer_but_cost_is_put_out(ending: str, name: str, tmp_path: Path) -> None:
    assert [value.name for value in architecture(tmp_path, NET + CONV + ending).model.graph.output] == [name]


def headed(head: str, channels: int) -> str:
    """Sections that end with a head, which reads an image of 2x2 cells of 4x4 pixels."""
    return f"[maxpool]\nsize=4\nstride=4\n[convolutional]\nfilters={channels}\nactivation=linear\n{head}"


def test_all_heads_are_put_out_in_order_and_raw(tmp_path: Path) -> None:
    yolo = "[yolo]\nanchors=1,2\nnum=1\nclasses=2\n"
    text = headed(yolo, 7) + "[route]\nlayers=0\n[conv]\nfilters=7\nactivation=linear\n" + yolo
    converted = architecture(tmp_path, NET + text)
    found = run_onnx(converted.model, image())
    assert list(found) == ["yolo_2", "yolo_5"] == [head.output for head in converted.heads]
    # Raw scores are on both sides of zero; Darknet's own output would have gone through the logistic function.
    assert all(array.min() < 0 < array.max() for array in found.values())


ANCHORS_OF_MASK = Head(output="yolo_2", kind="yolo", anchors=[(3, 4), (5, 6.5)], classes=3, scale_x_y=1.05)
ANCHORS_IN_PIXELS = Head(output="region_2", kind="region", anchors=[(4, 8), (2, 1)], classes=2)


@pytest.mark.parametrize(
    ("head", "channels", "known"),
    [
        ("[yolo]\nmask=1,2\nanchors=1,2, 3,4, 5,6.5\nclasses=3\nnum=3\nscale_x_y=1.05\n", 16, [ANCHORS_OF_MASK]),
        ("[region]\nanchors=1,2, 0.5,0.25\nclasses=2\nnum=2\nsoftmax=1\n", 14, [ANCHORS_IN_PIXELS]),
        # What no decoder understands.
        ("[yolo]\nanchors=1,2\nclasses=2\nnew_coords=1\n", 7, []),
        ("[region]\nanchors=1,2\nclasses=2\nsoftmax=0\n", 7, []),
        ("[region]\nanchors=1,2\nclasses=2\nsoftmax=1\ntree=a.tree\n", 7, []),
        ("[region]\nanchors=1,2\nclasses=2\nsoftmax=1\ncoords=5\n", 8, []),
    ],
)
def test_heads_are_put_out_and_known_if_a_decoder_understands_them(
    head: str, channels: int, known: list[Head], tmp_path: Path
) -> None:
    converted = architecture(tmp_path, NET + headed(head, channels))
    assert converted.heads == known
    assert len(converted.model.graph.output) == 1


def weighted(text: str = NET + CONV) -> tuple[np.ndarray, Recorder]:
    """What a network makes of the image, and the weights that it has."""
    recorder = Recorder()
    [wanted] = interpret(text, image()[0], recorder.take)
    return wanted, recorder


def assert_computed(files: list[Path], wanted: np.ndarray, options: ImportOptions = ImportOptions()) -> None:
    [found] = run_onnx(FORMAT.convert(files, {}, options).model, image()).values()
    assert close(found[0], wanted)


def close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("version", "seen"), [((0, 1), "<i"), ((0, 2), "<q"), ((0, 5), "<q"), ((1, 0), "<q"), ((1, 1), "<q")], ids=str
)
def test_the_header_is_as_long_as_its_version_says(version: tuple[int, int], seen: str, tmp_path: Path) -> None:
    wanted, recorder = weighted()
    weights = recorder.save(tmp_path / "net.weights", version, seen)
    assert_computed([cfg(tmp_path, NET + CONV), weights], wanted)


def test_matrices_of_old_files_are_transposed(tmp_path: Path) -> None:
    text = NET + "[connected]\noutput=5\nbatch_normalize=1\nactivation=linear\n"
    wanted, recorder = weighted(text)
    bias, matrix, *rest = recorder.stream
    recorder.stream = [bias, np.ascontiguousarray(matrix.T), *rest]
    weights = recorder.save(tmp_path / "net.weights", (1001, 0), "<i")
    assert_computed([cfg(tmp_path, text), weights], wanted)


def test_batch_normalisation_of_its_own_may_have_no_biases(tmp_path: Path) -> None:
    text = NET + "[batchnorm]\n"
    wanted, recorder = weighted(text)
    bias, *recorder.stream = recorder.stream
    files = [cfg(tmp_path, text), recorder.save(tmp_path / "net.weights")]
    assert_computed(files, wanted - bias[:, None, None])


def test_epsilon_can_be_given_and_is_1e_5_unless(tmp_path: Path) -> None:
    _, recorder = weighted()
    recorder.stream[3] *= np.float32(1e-5)  # variances, beside which epsilon counts
    files = [cfg(tmp_path, NET + CONV), recorder.save(tmp_path / "net.weights")]
    for options, epsilon in [(ImportOptions(), 1e-5), (ImportOptions(epsilon=1e-6), 1e-6)]:
        replayed = iter(recorder.stream)
        [wanted] = interpret(NET + CONV, image()[0], lambda role, shape, stream=replayed: next(stream), epsilon)
        assert_computed(files, wanted, options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-4], "is not complete: the layers of net.cfg need 496 bytes, and there are 492"),
        (lambda content: content[:10], "is not complete"),
        (lambda content: b"", "is not complete"),
        (lambda content: content + bytes(8), "has weights that no layer needs: .* need 496 bytes, and there are 504"),
    ],
)
def test_missing_and_surplus_bytes_are_counted(change: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    _, recorder = weighted()
    weights = recorder.save(tmp_path / "net.weights")
    weights.write_bytes(change(weights.read_bytes()))
    with pytest.raises(ModelError, match=message):
        FORMAT.convert([cfg(tmp_path, NET + CONV), weights], {})


@pytest.mark.parametrize(("array", "value"), [(4, np.nan), (0, np.inf), (3, -1.0)])
def test_values_that_are_no_weights_are_refused(array: int, value: float, tmp_path: Path) -> None:
    _, recorder = weighted()
    recorder.stream[array].flat[0] = value
    weights = recorder.save(tmp_path / "net.weights")
    with pytest.raises(ModelError, match=r"line 5, \[convolutional\]: its weights in net.weights are damaged"):
        FORMAT.convert([cfg(tmp_path, NET + CONV), weights], {})


def test_a_network_without_weights_says_how_to_do_without(tmp_path: Path) -> None:
    path = cfg(tmp_path, NET + CONV)
    for attempt in (lambda: FORMAT.files(path), lambda: FORMAT.convert([path], {})):
        with pytest.raises(ModelError, match=r"net.cfg has no weights") as raised:
            attempt()
        assert "put net.weights next to it" in raised.value.hints
        assert any("--weights random" in hint for hint in raised.value.hints)


def test_random_weights_are_always_the_same(tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    first = architecture(tmp_path, NET + CONV).model
    shutil.copy(tmp_path / "net.cfg", again)
    assert FORMAT.files(again / "net.cfg", RANDOM) == [again / "net.cfg"]
    assert FORMAT.convert([again / "net.cfg"], {}, RANDOM).model == first


@pytest.mark.parametrize("block", [WIDE, WIDE.replace("leaky", "mish"), RESIDUAL], ids=["chain", "mish", "residual"])
def test_values_neither_vanish_nor_explode_through_a_hundred_layers(block: str, tmp_path: Path) -> None:
    first = "[convolutional]\nfilters=32\nactivation=linear\n"
    repeats = 50 if "shortcut" in block else 100
    [found] = run_onnx(architecture(tmp_path, NET + first + block * repeats).model, image()).values()
    assert 1e-4 < found.std() < 1e6


def test_the_images_size_and_number_can_be_given(tmp_path: Path) -> None:
    converted = FORMAT.convert([cfg(tmp_path, NET + CONV)], {"data": [2, 3, 10, 6]}, RANDOM)
    assert run_onnx(converted.model, image(2, 3, 10, 6))["convolutional_0"].shape == (2, 4, 10, 6)


@pytest.mark.parametrize(
    "shape", [[1, 3, 8], [1, 4, 8, 8], [1, 3, 0, 8], [0, 3, 8, 8], [1, 3, -8, -8], [], [1, 3, 99999, 99999]]
)
def test_a_shape_that_does_not_fit_and_one_for_no_input_are_refused(shape: list[int], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'data' does not fit"):
        FORMAT.convert([cfg(tmp_path, NET + CONV)], {"data": shape}, RANDOM)
    with pytest.raises(InputError, match="its inputs: data"):
        FORMAT.convert([cfg(tmp_path, NET + CONV)], {"date": [1, 3, 8, 8]}, RANDOM)


# Lines are counted from 1; NET has four, and CONV six.
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[lstm]\n", r"line 5, \[lstm\]: this section is not supported: supported are .*\[yolo\]"),
        (CONV + "[Gaussian_yolo]\n", r"line 11, \[Gaussian_yolo\]: this section is not supported"),
        (CONV + "xnor=1\n", r"line 11, \[convolutional\]: xnor=1 is not supported"),
        (CONV + "share_index=0\n", r"line 11, \[convolutional\]: share_index=0 is not supported"),
        (CONV.replace("leaky", "maxout"), r"line 10, \[convolutional\]: activation=maxout is not supported"),
        (CONV.replace("filters=4", "filters=0"), r"line 7, \[convolutional\]: filters=0 is too small"),
        (CONV.replace("filters=4", "filters=-4"), r"line 7, .*too small: it must be 1 at least"),
        (CONV.replace("filters=4", "filters=many"), r"line 7, .*filters=many is not an integer"),
        (CONV.replace("filters=4", "filters=99999999999"), r"line 7, .*is not an integer"),
        (CONV.replace("size=3\npad=1", "size=30\npad=0"), r"line 8, .*size=30 is too large: .* has 8 pixels"),
        (CONV + "groups=2\n", r"line 11, .*groups=2 does not divide the channels: 3 channels go in and 4 come out"),
        (CONV.replace("pad=1", "padding=3") + "dilation=2\n", r"line 11, .*dilation=2 is not supported with this padd"),
        ("[maxpool]\nsize=2000\nstride=1\n", r"line 6, .*size=2000 is too large"),
        ("[maxpool]\nsize=2\npadding=4\n", r"line 7, .*padding=4 is too large"),
        ("[maxpool]\nsize=2\nmaxpool_depth=1\n", r"line 7, .*maxpool_depth=1 is not supported"),
        ("[upsample]\nstride=0\n", r"line 6, .*stride=0 does not divide the feature map"),
        ("[upsample]\nstride=-3\n", r"line 6, .*stride=-3 does not divide the feature map: it is 3x8x8"),
        ("[upsample]\nscale=big\n", r"line 6, .*scale=big is not a number"),
        ("[upsample]\nscale=1e39\n", r"line 6, .*scale=1e39 is not a number"),
        ("[upsample]\nscale=nan\n", r"line 6, .*scale=nan is not a number"),
        ("[upsample]\nstride=60000\n", r"line 5, .*its output is too large: it is 3x480000x480000"),
        ("[reorg]\nstride=2\n", r"line 6, .*stride=2 does not divide its input: it is 3x8x8"),
        ("[reorg]\nflatten=1\n", r"line 6, .*flatten=1 is not supported"),
        ("[route]\n", r"line 5, \[route\]: layers is missing"),
        ("[route]\nlayers=0\n", r"line 6, .*layers=0 is not an earlier layer: it is layer 0 itself"),
        (CONV + "[route]\nlayers=-2\n", r"line 12, .*layers=-2 is not an earlier layer"),
        (CONV + "[route]\nlayers=1\n", r"line 12, .*layers=1 is not an earlier layer: it is layer 1 itself"),
        (CONV + "[avgpool]\n[route]\nlayers=0,1\n", r"line 13, .*different sizes: layer 0 has 4x8x8, layer 1 4x1x1"),
        (CONV + "[route]\nlayers=0\ngroups=2\ngroup_id=2\n", r"line 13, .*there is no part 2 of 2"),
        (CONV + "[route]\nlayers=0\ngroups=3\n", r"line 13, .*there is no part 0 of 3: .* layer 0 has 4 channels"),
        (CONV + "[shortcut]\n", r"from is missing"),
        (CONV + "[shortcut]\nfrom=0\nweights_type=per_feature\n", r"line 13, .*weights_type=per_feature is not supp"),
        (CONV + "[maxpool]\nsize=1\nstride_x=2\nstride_y=1\n[shortcut]\nfrom=0\n", "differ by different factors"),
        (CONV + CONV + "[scale_channels]\nfrom=0\n", "one factor per channel: layer 0 has 4x8x8 and needs 4x1x1"),
        (CONV + "[avgpool]\n[sam]\nfrom=0\n", "one factor per value"),
        ("[softmax]\ngroups=5\n", r"line 6, .*groups=5 does not divide 192 values"),
        ("[softmax]\ntemperature=0\n", r"line 6, .*temperature=0 is not positive"),
        (CONV + "[yolo]\nanchors=1,2\nclasses=4\n", r"line 11, \[yolo\]: 4 channels go in: 1 anchors with 4 .* need 9"),
        (CONV + "[yolo]\nclasses=4\n", r"anchors= are not anchors"),
        (CONV + "[yolo]\nanchors=1,2,3\n", r"line 12, .*anchors=1,2,3 are not anchors"),
        (CONV + "[yolo]\nanchors=1,0\n", r"line 12, .*are not anchors"),
        (CONV + "[yolo]\nanchors=1,2\nmask=1\n", r"its mask names anchors that do not exist: there are 1"),
        (CONV + "[yolo]\nanchors=1,2\nnum=2000000000\n", r"num=2000000000 is too large: there are 1 anchors"),
        ("[yolo]\nanchors=1,2\nclasses=1\n" + CONV, "3 channels go in"),
        ("", "net.cfg has no layers"),
        ("[cost]\n", "net.cfg has no layers"),
        ("filters\n", "line 5 is neither a section nor an option: its text is 'filters'"),
        ("[connected]\noutput=2000000000\n", r"line 5, \[connected\]: the network has too many weights"),
        ("[dropout]\n" * 3000, "line 2053, .*the network has too many layers"),
        (CONV + "[route]\nlayers=" + "0," * 9000, "line 11, .*the network has too many connections"),
        (
            headed("[yolo]\nanchors=1,2\nclasses=2\n[avgpool]\n", 7),
            r"\[avgpool\]: it reads layer 2: \[yolo\] outputs detections",
        ),
        ("#" * 2**18, "not a cfg file of Darknet: it has more than 262,1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(body: str, message: str, tmp_path: Path) -> None:
    refused(tmp_path, NET + body, message)


@pytest.mark.parametrize("missing", ["width", "height", "channels"])
def test_the_image_must_be_stated(missing: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in NET.splitlines() if missing not in line) + "\n" + CONV
    refused(tmp_path, text, rf"line 1, \[net\]: {missing} is not stated")


def test_a_missing_file_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        FORMAT.convert([tmp_path / "none.cfg"], {}, RANDOM)
    with pytest.raises(ModelError, match="cannot read"):
        FORMAT.convert([cfg(tmp_path, NET + CONV), tmp_path / "none.weights"], {})


# What the sections of Darknet's cfg files compute, against a second implementation in numpy.

LAYER_NET = "[net]\nbatch=64\nchannels=4\nheight=12\nwidth=16\n"


def conv(filters: int, *options: str) -> str:
    """A convolution of single pixels, unless options say otherwise."""
    return "\n".join(["[convolutional]", f"filters={filters}", *options, "activation=linear", ""])


# Each ends with the layer that is looked at.
SECTIONS = {
    "convolution": "[convolutional]\nfilters=6\nsize=3\nstride=2\npad=1\nactivation=leaky",
    "convolution without padding": conv(6, "size=3"),
    "convolution with padding of its own": conv(6, "size=3", "padding=3"),
    "convolution of even size": conv(2, "size=4", "pad=1"),
    "convolution with defaults": "[convolutional]\n",
    "convolution with batch normalisation": "[convolutional]\nbatch_normalize=1\nfilters=6\nsize=3\nactivation=leaky",
    "convolution in groups": conv(6, "size=3", "groups=2", "pad=1"),
    "depthwise convolution": conv(4, "batch_normalize=1", "size=5", "groups=4", "pad=1"),
    "convolution with two strides": conv(3, "size=3", "stride_x=3", "stride_y=2"),
    "dilated convolution": conv(3, "size=3", "dilation=2", "stride=2", "pad=1"),
    "short names": "[conv]\nfilters=8\nactivation=linear\n[max]\nsize=2\nstride=2\n[avg]\n[conn]\noutput=6\n[soft]\n",
    "connected": "[connected]\noutput=7\nactivation=tanh",
    "connected with batch normalisation": "[connected]\noutput=7\nbatch_normalize=1\nactivation=linear",
    "batch normalisation": "[batchnorm]",
    "maximum": "[maxpool]\nsize=2\nstride=2",
    "maximum of stride one": "[maxpool]\nsize=2\nstride=1",
    "maximum of odd size": "[maxpool]\nsize=3\nstride=2",
    "maximum without padding": "[maxpool]\nsize=3\nstride=2\npadding=0",
    "maximum of odd padding": "[maxpool]\nsize=4\nstride=3\npadding=3",
    "maximum of size as stride": "[maxpool]\nstride=3",
    "maximum of large windows": "[maxpool]\nsize=13\nstride=1",
    "maximum with two strides": "[maxpool]\nsize=3\nstride=1\nstride_x=2",
    "mean of windows": "[local_avgpool]\nsize=3\nstride=2",
    "mean of windows of stride one": "[local_avgpool]\nsize=2\nstride=1",
    "mean": "[avgpool]",
    "upsampling": "[upsample]",
    "upsampling with scale": "[upsample]\nstride=3\nscale=.5",
    "downsampling": "[upsample]\nstride=-2\nscale=2",
    "reorg": "[reorg]\nstride=2",
    "reorg of many channels": conv(24) + "[reorg]\nstride=2",
    "reorg in threes": conv(18) + "[upsample]\nstride=3\n[reorg]\nstride=3",
    "reorg reversed": conv(24) + "[reorg]\nstride=2\nreverse=1",
    "reorg3d": conv(3) + "[reorg3d]\nstride=2",
    "route": conv(3) + conv(5) + "[route]\nlayers=-1, 0",
    "route backwards": conv(3) + "[maxpool]\nstride=2\n[route]\nlayers=-2",
    "route of a part": conv(6) + "[route]\nlayers=-1\ngroups=3\ngroup_id=1",
    "route of parts": conv(6) + conv(2) + "[route]\nlayers=0,1\ngroups=2\ngroup_id=1",
    "shortcut": conv(3) + conv(3) + "[shortcut]\nfrom=-2\nactivation=leaky",
    "shortcut of several": conv(3) + conv(3) + conv(3) + "[shortcut]\nfrom=-2,0",
    "shortcut to more channels": conv(3) + conv(5) + "[shortcut]\nfrom=-2\nactivation=linear",
    "shortcut to fewer channels": conv(5) + conv(3) + "[shortcut]\nfrom=-2\nactivation=linear",
    "shortcut to fewer pixels": conv(3)
    + conv(5, "size=3", "stride=2", "pad=1")
    + "[shortcut]\nfrom=0\nactivation=leaky",
    "shortcut to more pixels": conv(5) + "[maxpool]\nstride=2\n[upsample]\n" + conv(7) + "[shortcut]\nfrom=1",
    "shortcut to slightly fewer pixels": conv(3) + conv(3, "size=3") + "[shortcut]\nfrom=-2",
    "shortcut to slightly more pixels": conv(3, "size=3") + conv(3, "size=3", "padding=2") + "[shortcut]\nfrom=-2",
    "scaled channels": conv(6) + "[avgpool]\n[connected]\noutput=6\n[scale_channels]\nfrom=-3",
    "scaled pixels": conv(6) + conv(1) + "[scale_channels]\nfrom=-2\nscale_wh=1\nactivation=relu",
    "sam": conv(6) + "[convolutional]\nfilters=6\nactivation=logistic\n[sam]\nfrom=-2",
    "dropout": conv(6) + "[dropout]\nprobability=.5",
    "cost": "[avgpool]\n[softmax]\n[cost]\ntype=sse",
    "softmax": "[avgpool]\n[softmax]",
    "softmax of an image": "[softmax]",
    "softmax in groups": "[connected]\noutput=12\nactivation=linear\n[softmax]\ngroups=3\ntemperature=2.5",
    "yolo": conv(14) + "[yolo]\nclasses=2\nnum=3\nmask=0,2\nanchors=1,2, 3,4, 5,6",
    "region": conv(7) + "[region]\nclasses=2\nnum=1\nanchors=1.5,2.5\nsoftmax=1",
}
ACTIVATIONS = {name: f"[activation]\nactivation={name}" for name in FUNCTIONS}
LONG = {"conv": "convolutional", "max": "maxpool", "avg": "avgpool", "conn": "connected", "soft": "softmax"}


def saved(folder: Path, body: str) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """A network's files with weights, an image, and what the interpreter makes of it."""
    path = cfg(folder, LAYER_NET + body)
    text = LAYER_NET + body + "\n"
    for short, name in LONG.items():
        text = text.replace(f"[{short}]", f"[{name}]")
    image = np.random.default_rng(1).standard_normal((4, 12, 16)).astype(np.float32) * 2
    recorder = Recorder()
    outputs = interpret(text, image, recorder.take)
    return [path, recorder.save(folder / "net.weights")], image, outputs[-1]


@pytest.mark.parametrize("body", [*SECTIONS.values(), *ACTIVATIONS.values()], ids=[*SECTIONS, *ACTIVATIONS])
def test_a_section_computes_what_darknet_computes(body: str, tmp_path: Path) -> None:
    files, image, wanted = saved(tmp_path, body)
    [found] = run_onnx(FORMAT.convert(files, {}).model, image[None]).values()
    assert close(found[0], wanted)
    # Images of a batch do not see each other.
    images = np.stack([image * 0.5, image])
    [found] = run_onnx(FORMAT.convert(files, {"data": images.shape}).model, images).values()
    assert close(found[1], wanted)


@pytest.mark.slow
@pytest.mark.parametrize("body", [*SECTIONS.values(), *ACTIVATIONS.values()], ids=[*SECTIONS, *ACTIVATIONS])
def test_compiled_code_computes_the_same(body: str, tmp_path: Path) -> None:
    files, image, wanted = saved(tmp_path, body)
    [found] = outputs_of(compile_network(FORMAT.read(files, {}), load_board("local")), {"data": image[None]})
    assert close(found[0], wanted)


# Hostile cfg files and weights give errors of ours: no crash, no hang, no memory.

# Most sections, one in a line.
EVERY_SECTION = """
[net] width=16 height=16 channels=3
[convolutional] batch_normalize=1 filters=8 size=3 stride=2 pad=1 activation=leaky
[convolutional] filters=8 groups=8 size=3 dilation=2 pad=1 activation=mish
[shortcut] from=-2 activation=linear
[maxpool] size=2 stride=1
[route] layers=-1,-2,0 groups=2 group_id=1
[upsample] stride=2 scale=0.5
[local_avgpool] size=3 stride=2
[reorg] stride=2
[batchnorm]
[convolutional] filters=14 activation=linear
[yolo] mask=0,2 anchors=1,2,3,4,5,6 classes=2 num=3
[route] layers=2
[avgpool]
[connected] output=8 activation=logistic
[scale_channels] from=2
[convolutional] filters=7 size=1 activation=linear
[region] anchors=1.5,2.5 classes=2 softmax=1
"""
SEED = EVERY_SECTION.strip().replace("\n", "\n\n").replace(" ", "\n") + "\n"
HOSTILE = ["0", "-1", "-2", "2", "3", "7", "255", "65536", "2147483647", "-2147483648", "2147483648", "9" * 40, "1e9"]
HOSTILE += ["", ",", "1,-1,0", "nan", "inf", "1e-400", "1e308", "٣", "\0", "=", "leaky", "-1," * 200]


@pytest.fixture(scope="module")
def sound_weights(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Those of SEED, which has most sections."""
    recorder = Recorder()
    interpret(SEED, np.zeros((3, 16, 16), np.float32), recorder.take)
    return recorder.save(tmp_path_factory.mktemp("seed") / "seed.weights").read_bytes()


@pytest.mark.parametrize(("count", "load"), [(600, True), pytest.param(12_000, False, marks=pytest.mark.slow)])
def test_damaged_files_are_refused_or_valid(sound_weights: bytes, tmp_path: Path, count: int, load: bool) -> None:
    random, converted = np.random.default_rng(0), 0
    cfg, beside = tmp_path / "net.cfg", tmp_path / "net.weights"

    def convert() -> None:
        model = FORMAT.convert([cfg, beside], {}).model
        if load:
            OnnxruntimeRunner(model.SerializeToString())

    for case in range(count):
        cfg.write_bytes(damaged_text(SEED.encode(), random, HOSTILE) if case % 4 else SEED.encode())
        beside.write_bytes(sound_weights if case % 4 > 1 else damaged(sound_weights, random))
        converted += survive(convert)
    assert count / 30 < converted < count * 2 / 3


@pytest.mark.quick("*-file")
@pytest.mark.parametrize("weights", ["file", "random"])
@pytest.mark.parametrize(
    "body",
    [
        "[convolutional]\nfilters=2147483647\nsize=2147483647\npadding=2147483647\n",
        "[convolutional]\nfilters=100000\nsize=999\npad=1\n",
        "[convolutional]\nfilters=2147483647\n",
        "[connected]\noutput=2147483647\n",
        "[upsample]\nstride=2147483647\n",
        "[upsample]\nstride=2\n" * 2000,
        "[route]\nlayers=" + "-1," * 80_000 + "\n",
        "[maxpool]\nsize=1\n[shortcut]\nfrom=" + "0," * 120_000 + "\n",
        "[maxpool]\nsize=1\n" + "[route]\nlayers=-1,-1,-1,-1\n" * 2000,
        "[maxpool]\nsize=2147483647\nstride=1\n",
        "[yolo]\nanchors=1,2\nnum=2147483647\nclasses=2147483647\n",
        "[yolo]\nanchors=" + "1," * 120_000 + "\n",
        "[softmax]\ngroups=2147483647\n",
        "[dropout]\n" * 25_000,
        "[x" * 120_000,
        "[net]\n" + "a=b\n" * 60_000,
        "[net]\n" + "".join(f"{number}=1\n" for number in range(30_000)),
        "[" * 200_000,
        "\n" * 250_000,
    ],
    ids=lambda body: body[:24].replace("\n", " "),
)
def test_hostile_counts_cost_little(body: str, weights: Literal["file", "random"], tmp_path: Path) -> None:
    text = "[net]\nwidth=16\nheight=16\nchannels=3\n" + body
    architecture(tmp_path, NET + CONV)  # what is imported once is no cost
    files = [cfg(tmp_path, text), tmp_path / "net.weights"]
    files[1].write_bytes(bytes(1000))
    results: list[bool] = []

    def convert() -> None:
        FORMAT.convert(files, {}, ImportOptions(weights=weights))

    peak = peak_of(lambda: results.append(survive(convert)))
    assert results == [False]
    # A text's lines cost more than their characters as objects, which its largest size bounds.
    assert peak < 4 * len(text) + 2**24
