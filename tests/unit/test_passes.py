"""Passes: a list whose parts fit each other, what `build` shows of it, those of other packages, and what some do."""

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from conftest import ROOT, Command
from support.agreement import assert_agrees, computed, convolved, network_of
from support.commands import json_of, output_of, put, refusal
from support.networks import Quantised, begun, tiny, unrolled_lstm
from support.wheels import distribution
from tvm import relax

from edgedeploy import build_key as keys
from edgedeploy.cli.build import complete_pass
from edgedeploy.compile.integers.quantisation import has_quantisation, recognise, spell_out
from edgedeploy.compile.ir.expressions import constant, parts_of
from edgedeploy.compile.ir.optraits import operator_name
from edgedeploy.compile.passes import Compilation, Pass
from edgedeploy.compile.passes.order import PASSES, passes_for
from edgedeploy.compile.passes.running import run_passes
from edgedeploy.compile.passes.unify import decompose, unify
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import CompileError, ConfigurationError
from edgedeploy.frontends.importing import specifications
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.package.archive import read_manifest
from edgedeploy.target.board import load_board
from edgedeploy.zoo.source import find_source

LOCAL = load_board("local")
OPTIONAL = [each.name for each in PASSES if not each.required]


@pytest.fixture
def network() -> Network:
    """A network in which each pass finds something to do."""
    graph = Quantised()
    data = graph.input("data", [1, 3, 12, 12])
    weights = graph.random.standard_normal((10, 3, 3, 3)).astype(np.float32) * 0.3
    weights[4], weights[5, 0, 0, 0] = 0, 1e-42
    first = graph.node("Conv", data, graph.weight(weights), graph.normal(10), pads=[1] * 4)
    first = graph.node("LeakyRelu", graph.batch_norm(first, 10))
    wide = graph.node("ConvTranspose", first, graph.normal(10, 8, 2, 2), strides=[2, 2])
    both = graph.node("Concat", first, graph.node("MaxPool", wide, kernel_shape=[2, 2], strides=[2, 2]), axis=1)
    value = graph.node("Sigmoid", graph.conv(both, 18, 16, 3, pads=[24] * 4, dilations=[24] * 2))
    value = graph.node("AveragePool", value, kernel_shape=[3, 3], pads=[1] * 4)
    groups = graph.reshape(value, 1, 2, -1)
    groups = graph.node("InstanceNormalization", groups, graph.normal(2), graph.normal(2))
    value = graph.node("Sigmoid", graph.node("Reshape", groups, graph.node("Shape", value)))
    value = graph.pair(value, 0.01, np.uint8(3))
    gate = graph.node("Sigmoid", graph.conv(graph.node("GlobalAveragePool", value), 16, 16, 1))
    value = graph.node("Mul", value, gate)
    value = graph.slice(graph.conv(value, 16, 16, 3), 0, 9, axis=1)
    signal = graph.reshape(graph.node("GlobalAveragePool", value), 1, 3, 3)
    signal = graph.node("Conv", signal, graph.normal(3, 3, 1))
    states, _ = unrolled_lstm(graph, graph.node("Transpose", signal, perm=[1, 0, 2]), (3, 1, 3), 3)
    signal = graph.node("Transpose", graph.node("Concat", *states, axis=0), perm=[1, 0, 2])
    volume = graph.reshape(signal, 1, 3, 3, 1, 1)
    flat = graph.node("Flatten", graph.node("Conv", volume, graph.normal(3, 3, 1, 1, 1)))
    classes = graph.node("Gemm", flat, graph.normal(9, 5), graph.normal(5))
    return network_of(graph, classes, graph.doubled(value, "linear"), sum_of_bytes(graph, data))


def sum_of_bytes(graph: Quantised, data: str) -> str:
    """The sum of two convolutions of quantised tensors, by powers of two: sums in float are exact as well."""
    pair = graph.pair(data, 1 / 64, np.uint8(128))
    layers = (graph.node("Conv", pair, graph.random_bytes(8, 3, 3, 3, scale=1 / 128)) for _ in range(2))
    total = graph.node("Add", *(graph.pair(layer, 1 / 16, np.uint8(128)) for layer in layers))
    return graph.pair(total, 1 / 16, np.uint8(128))


def after_each(network: Network, board: str = "local") -> dict[str, tvm.IRModule]:
    seen: dict[str, tvm.IRModule] = {}
    lower_network(network, load_board(board), listener=lambda each, module, _: seen.update({each.name: module.clone()}))
    return seen


def calls(module: tvm.IRModule) -> list[relax.Call]:
    return [binding.value for block in module["main"].body.blocks for binding in block.bindings]


def test_each_pass_works_on_the_layout_that_the_one_before_it_leaves() -> None:
    for before, after in pairwise(PASSES):
        assert after.expects.layout == before.result.layout, after.name
    assert all(each.required for each in PASSES if each.expects.layout != each.result.layout)


@pytest.mark.parametrize("board", ["local", "nuc-opencl"])
def test_each_pass_leaves_a_well_formed_module_of_the_layout_that_it_states(network: Network, board: str) -> None:
    found = after_each(network, board)
    assert list(found) == [each.name for each in PASSES if each.applies(load_board(board))]
    assert ("make-views" in found) == (board == "nuc-opencl")
    for each in (each for each in PASSES if each.name in found):
        relax.analysis.well_formed(found[each.name])
        operators = [call for call in calls(found[each.name]) if isinstance(call, relax.Call)]
        names = {call.op.name for call in operators if isinstance(call.op, tvm.ir.Op)}
        if each.result.layout in ("NCHW", "NHWC"):
            convolutions = [call for call in operators if call.op.name == "relax.nn.conv2d"]
            assert {call.attrs.data_layout for call in convolutions} <= {each.result.layout}, each.name
        else:
            lowered = {"relax.call_tir", "relax.memory.view", "relax.reshape", "relax.call_pure_packed"}
            assert names <= lowered, each.name


def test_each_pass_has_something_to_do(network: Network) -> None:
    found, before = after_each(network), network.module
    idle = set()
    for name, module in found.items():
        if tvm_ffi.structural_equal(module, before):
            idle.add(name)
        before = module
    # ONNX's importer leaves nothing of the first three; this network has neither integers nor half precision.
    assert idle <= {
        *("decompose-operators", "fold-calls", "remove-dead-code", "guard-integers"),
        *("widen-half", "compute-in-half"),
    }


def in_float64() -> tvm.IRModule:
    """A convolution with a filter of zeros, times a number below the normal ones of float32."""
    data = relax.Var("data", relax.TensorType([1, 2, 4, 4], "float64"))
    weights, scale = np.array([1.0, 0, 0, 0]).reshape(2, 2, 1, 1), np.full((1, 2, 1, 1), 1e-42)
    builder = relax.BlockBuilder()
    with builder.function("main", [data]):
        with builder.dataflow():
            convolved = builder.emit(relax.op.nn.conv2d(data, relax.const(weights, "float64")))
            scaled = builder.emit_output(relax.op.multiply(convolved, relax.const(scale, "float64")))
        builder.emit_func_output(scaled)
    return builder.get()


@pytest.mark.parametrize(
    "each", [each for each in PASSES if each.expects.types == ("float32",)], ids=lambda each: each.name
)
def test_passes_for_float32_leave_other_types_as_they_are(each: Pass) -> None:
    module = in_float64()
    assert tvm_ffi.structural_equal(each.run(module, Compilation(LOCAL)), module)


@pytest.mark.compiles
def test_a_network_gives_the_same_values_without_any_optional_pass(network: Network) -> None:
    assert_agrees(compile_network(network, LOCAL, disabled_passes=OPTIONAL), network)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONAL)
def test_a_network_gives_the_same_values_without_one_optional_pass(network: Network, name: str) -> None:
    assert name not in [each.name for each in passes_for(LOCAL, [name])]
    assert_agrees(compile_network(network, LOCAL, disabled_passes=[name]), network)


@pytest.mark.compiles
def test_dumps_the_module_after_each_pass(command: Command, tmp_path: Path) -> None:
    folder = Path("dist/local/net.passes")
    put(folder / "99-of-a-build-before.ir.py", "")
    (folder / "notes.txt").write_text("")
    out = output_of(command, "build", tiny(tmp_path / "net.onnx"), "--dump", "passes", "--print-pass-times")
    passes = [each.name for each in PASSES if each.applies(LOCAL)]
    names = [f"{number:02}-{name}.ir.py" for number, name in enumerate(["imported", *passes])]
    assert sorted(path.name for path in folder.iterdir()) == [*names, "notes.txt"]
    assert str(folder) in out.splitlines()
    for number, layout in enumerate(["NCHW"] * passes.index("convert-layout") + ["NHWC"], 1):
        assert f'data_layout="{layout}"' in (folder / names[number]).read_text()
    assert re.findall(r"^([a-z-]+) +[\d.]+$", out, re.MULTILINE) == [*passes, "all"]


@pytest.mark.compiles
@pytest.mark.cold_cache
def test_a_package_without_a_pass_is_never_taken_for_the_usual_one(command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    arguments = ["--disable-pass", "fold-scales", "--disable-pass", "pad-channels", "--print-pass-times"]
    [built] = json_of(command, "build", net, *arguments)
    assert built["disabled_passes"] == ["fold-scales", "pad-channels"]
    assert not {each["pass"] for each in built["pass_times"]} & {"fold-scales", "pad-channels"}
    assert all(each["ms"] > 0 for each in built["pass_times"])
    assert read_manifest(Path(built["package"])).disabled_passes == ["fold-scales", "pad-channels"]
    assert re.search(r"^without passes +fold-scales", command("package", "show", built["package"])[1], re.MULTILINE)
    err = command("run", net)[2]
    assert f"{built['package']} is not used" in err
    assert "building net" in err


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("fold-scale", 4, "did you mean fold-scales"),
        ("zzz", 4, "edgedeploy build --list-passes"),
        ("convert-layout", 7, "cannot be disabled: templates work on NHWC"),
    ],
)
def test_some_passes_cannot_be_disabled(command: Command, tmp_path: Path, name: str, code: int, message: str) -> None:
    err = refusal(command, code, "build", tiny(tmp_path / "net.onnx"), "--disable-pass", name)
    assert message in err
    assert "import " not in err
    assert not Path("dist").exists()


def test_names_of_passes_are_completed() -> None:
    assert complete_pass("re") == ["remove-channels", "remove-transposes", "remove-dead-code"]
    assert complete_pass("convert") == []


def test_the_page_about_passes_lists_them_and_shows_the_example(command: Command) -> None:
    page = (ROOT / "docs" / "passes.md").read_text(encoding="utf-8")
    rows = [tuple(row) for row in re.findall(r"^\| `([\w-]+)`( \*)? \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)]
    listed = [(row.name, " *" if row.required else "", row.what, str(row.expects), str(row.result)) for row in PASSES]
    assert rows == listed
    assert (ROOT / "examples/mish/edgedeploy_mish.py").read_text().split('"""\n\n', 1)[1] in page
    printed = json_of(command, "build", "--list-passes")
    assert [each["name"] for each in printed] == [each.name for each in PASSES]
    assert "\nmake-views *" in command("build", "--list-passes")[1]


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package whose entry points are passes: their names, with Python expressions that give them."""
    numbers = count()

    def make(version: str = "1.0", package: str = "some-passes", **passes: str) -> None:
        site = tmp_path / f"site{next(numbers)}"
        module = f"{tmp_path.name.replace('-', '_')}_{site.name}"
        points = [f"{name.replace('_', '-')} = {module}:{name.upper()}" for name in passes]
        distribution(site, package, version, points=["[edgedeploy.passes]", *points])
        lines = [f"{name.upper()} = {value}" for name, value in passes.items()]
        head = "import numpy as np, tvm\nfrom tvm import relax\nfrom edgedeploy.compile.passes import Form, Pass"
        (site / f"{module}.py").write_text("\n".join([head, *lines, ""]))
        monkeypatch.syspath_prepend(site)
        keys.versions.cache_clear()

    return make


@pytest.fixture(autouse=True)
def _versions_are_read_again() -> None:
    keys.versions.cache_clear()


def one(run: str, name: str = "mine", where: str = 'before="fold-scales"') -> str:
    return f"Pass({name!r}, 'Does it.', lambda module, compilation: {run}, {where})"


@pytest.mark.compiles
def test_the_example_replaces_an_operator(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/passes.md has it, but for the folder that it is installed into and what pip would fetch."""
    copy, site = tmp_path / "mish", tmp_path / "site"
    copy.mkdir()
    for path in (ROOT / "examples" / "mish").iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(copy)]
    subprocess.run(pip, check=True, timeout=120)
    monkeypatch.syspath_prepend(site)
    graph, data = begun(1, 3, 8, 8, opset=20)
    data = graph.node("Mish", graph.conv(data, 3, 8, 3))
    output = graph.node("Mul", data, graph.node("Tanh", graph.node("Softplus", data)))
    output_of(command, "build", graph.save(tmp_path / "net.onnx", output), "--dump", "passes")
    before, after = (
        next(Path("dist/local/net.passes").glob(f"*-{name}.ir.py")).read_text()
        for name in ("fold-constants", "fast-mish")
    )
    assert [before.count(f"R.{name}(") for name in ("exp", "log", "tanh")] == [2, 2, 2]
    assert [after.count(f"R.{name}(") for name in ("exp", "log", "tanh")] == [2, 0, 0]
    manifest = read_manifest(Path("dist/local/net.tar.gz"))
    assert manifest.checked.how == "here"
    assert manifest.versions["edgedeploy-mish"] == "1.0"
    assert "edgedeploy-mish 1.0" in command("build", "--list-passes")[1]


def test_what_adds_passes_belongs_to_the_build_key(install: Install, tmp_path: Path) -> None:
    source = find_source(str(tiny(tmp_path / "net.onnx")))
    found = [keys.build_key(source, LOCAL), keys.build_key(source, LOCAL, disabled_passes=["pad-channels"])]
    for version, what in (("1.0", "module"), ("2.0", "module"), ("2.0", "module.clone()")):
        install(version, mine=one(what))
        found.append(keys.build_key(source, LOCAL))
    assert len(set(found)) == len(found)


def test_passes_run_where_they_ask_to(install: Install) -> None:
    install(second=one("module", "second", 'after="pad-channels"'), last=one("module", "last", 'after="second"'))
    install(package="others", first=one("module", "first", 'after="pad-channels"'))
    names = [each.name for each in passes_for(LOCAL)]
    place = names.index("pad-channels") + 1
    assert names[place : place + 3] == ["first", "second", "last"]
    assert [name for name in names if name not in ("first", "second", "last")] == [
        each.name for each in PASSES if each.applies(LOCAL)
    ]
    assert "second" in complete_pass("sec")


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("None", "it returned NoneType, not an IRModule"),
        ("tvm.IRModule({})", "it changed"),
        ("relax.transform.BindParams('main', {'data': np.zeros((1, 3, 8, 8), 'float32')})(module)", "it changed"),
    ],
    ids=["raises", "no module", "no network", "other inputs"],
)
def test_a_pass_that_fails_is_named(install: Install, tmp_path: Path, run: str, why: str) -> None:
    install(mine=one(run))
    with pytest.raises(CompileError) as raised:
        lower_network(read_onnx(tiny(tmp_path / "net.onnx")), LOCAL)
    assert str(raised.value).startswith(f"{tmp_path}/net.onnx cannot be compiled for {LOCAL.triple}")
    assert "pass mine of some-passes 1.0: " in str(raised.value)
    assert why in str(raised.value)


def test_a_failing_pass_leaves_the_modules_before_it(install: Install, command: Command, tmp_path: Path) -> None:
    install(mine=one("1 / 0"))
    err = refusal(command, 6, "build", tiny(tmp_path / "net.onnx"), "--dump", "passes")
    assert "build without it: --disable-pass mine" in err
    dumped = sorted(path.name for path in Path("dist").rglob("*") if path.is_file())
    assert dumped[0] == "00-imported.ir.py"
    assert dumped[-1].endswith("-trim-kernels.ir.py")


def test_a_module_that_is_not_well_formed_is_refused(network: Network) -> None:
    def free(module: tvm.IRModule, compilation: Compilation) -> tvm.IRModule:
        main, other = module["main"], relax.Var("other", relax.TensorType([1, 5], "float32"))
        return tvm.IRModule({"main": relax.Function(main.params, relax.SeqExpr(main.body.blocks, other), other.ty)})

    mine = Pass("mine", "Leave a variable free.", free, package="some-passes 1.0")
    with pytest.raises(Exception, match=r"pass mine of some-passes 1\.0: .*other"):
        run_passes(network.module, [mine], Compilation(LOCAL))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("mine", "1 / 0", "ZeroDivisionError: division by zero"),
        ("mine", "None", "is NoneType, not Pass"),
        ("mine", one("module", "another"), "gives one of the name 'another'"),
        ("mine", one("module", "../mine"), "invalid name of a pass '../mine'"),
        ("mine", one("module", where='before="fold-scales", after="fold-scales"'), "not both"),
        ("mine", one("module", where=""), "it has neither `before` nor `after`"),
        ("mine", one("module", where='after="fold-scale"'), "did you mean fold-scales"),
        ("mine", one("module", where='after="mine"'), "it runs next to mine, which is disabled or has no place itself"),
        ("mine", one("module", where='after="convert-layout"'), "mine works on NCHW, and convert-layout leaves NHWC"),
        ("mine", one("module", where='leaves=Form("NHWC"), before="fold-scales"'), "fold-scales works on NCHW"),
        ("mine", one("module", where='expects=Form("fused functions"), after="merge-fused"'), "lowered from their"),
        ("pad_channels", one("module", "pad-channels"), "edgedeploy has one of that name"),
    ],
)
def test_a_pass_that_cannot_be_used_is_explained(install: Install, name: str, value: str, why: str) -> None:
    install(**{name: value})
    name = name.replace("_", "-")
    with pytest.raises(ConfigurationError, match=f"the pass '{name}' of some-passes 1.0 cannot be used") as raised:
        passes_for(LOCAL)
    assert why in str(raised.value)
    assert any(f"--disable-pass {name}" in hint for hint in raised.value.hints)
    assert passes_for(LOCAL, [name])


def test_an_unusable_pass_is_refused_before_the_build(install: Install, command: Command, tmp_path: Path) -> None:
    install(mine="None")
    assert "import " not in refusal(command, 3, "build", tiny(tmp_path / "net.onnx"))
    assert command("build", "--list-passes")[0] == 3
    assert command("build", "--list-passes", "--disable-pass", "mine")[0] == 0
    assert not [path for path in Path("dist").rglob("*") if path.is_file()]


def test_two_packages_cannot_have_passes_of_one_name(install: Install) -> None:
    install(mine=one("module"))
    install(package="others", mine=one("module"))
    with pytest.raises(ConfigurationError, match="has one of the same name"):
        passes_for(LOCAL)


# What importers write in several ways becomes the same operators, with the same values.


DATA = np.random.default_rng(0).standard_normal((1, 4, 3, 5)).astype(np.float32)
COLUMN = np.float32([1, 2, 3, 4])
KERNEL = np.random.default_rng(2).standard_normal((6, 4, 3, 2)).astype(np.float32)


def module_of(
    make: Callable[[relax.BlockBuilder, Any], Any], shape: tuple[int, ...] = DATA.shape, dtype: str = "float32"
) -> tvm.IRModule:
    build, data = relax.BlockBuilder(), relax.Var("data", relax.TensorType(shape, dtype))
    with build.function("main", [data]):
        with build.dataflow():
            result = build.emit_output(make(build, data))
        build.emit_func_output(result)
    return build.get()


def operators(module: tvm.IRModule) -> list[str]:
    return [name for part in parts_of(module["main"]) if (name := operator_name(part))]


def result_of(module: tvm.IRModule, data: np.ndarray) -> np.ndarray:
    given, returned = specifications(Path("net"), module["main"], ["data"], ["y"])
    network = Network(Path("net"), module, given, returned, False, lambda tensors: {}, "none")
    return computed(network, {"data": data})[0]


def normalisation(build: relax.BlockBuilder, data: Any) -> Any:
    parts = [constant(each) for each in (COLUMN, -COLUMN, COLUMN / 4, COLUMN / 2)]
    return relax.TupleGetItem(build.emit(relax.op.nn.batch_norm(data, *parts, axis=1, epsilon=1e-3, training=False)), 0)


@pytest.mark.compiles
@pytest.mark.parametrize("shape", [(2, 4, 6), (1, 4, 3, 5), (1, 4, 2, 3, 2)])
def test_batch_normalisation_is_one_product_and_one_sum(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    module = module_of(normalisation, shape)
    assert operators(decompose(module)) == ["multiply", "add"]
    column = COLUMN.reshape([-1] + [1] * (len(shape) - 2))
    expected = (data - column / 4) / np.sqrt(column / 2 + 1e-3) * column - column
    np.testing.assert_allclose(result_of(module, data), expected, rtol=1e-5, atol=1e-5)


CASES: dict[str, tuple[Callable[[relax.BlockBuilder, Any], Any], list[str], Callable[[np.ndarray], np.ndarray]]] = {
    "x - c": (lambda build, x: relax.op.subtract(x, constant(3.0, "float32")), ["add"], lambda x: x - 3),
    "x / c": (lambda build, x: relax.op.divide(x, constant(6.0, "float32")), ["multiply"], lambda x: x / 6),
    "c - x": (
        lambda build, x: relax.op.subtract(constant(3.0, "float32"), x), ["subtract"], lambda x: 3 - x
    ),
    "axes from the end": (
        lambda build, x: relax.op.squeeze(build.emit(relax.op.expand_dims(x, [-2])), [-2]), ["reshape"], lambda x: x
    ),
    "adaptive mean": (
        lambda build, x: relax.op.nn.adaptive_avg_pool2d(x, 1), ["mean"], lambda x: x.mean((2, 3), keepdims=True)
    ),
    "to its own shape": (
        lambda build, x: relax.op.exp(build.emit(relax.op.broadcast_to(x, DATA.shape))), ["exp"], np.exp
    ),
    "two transposes": (
        lambda build, x: relax.op.permute_dims(build.emit(relax.op.permute_dims(x, [0, 2, 3, 1])), [0, 2, 1, 3]),
        ["permute_dims"],
        lambda x: x.transpose(0, 3, 2, 1),
    ),
    "a stack of one matrix": (
        lambda build, x: relax.op.matmul(x, constant(np.arange(10, dtype=np.float32).reshape(1, 5, 2))),
        ["matmul"],
        lambda x: x @ np.arange(10, dtype=np.float32).reshape(5, 2),
    ),
}  # fmt: skip


@pytest.mark.compiles
@pytest.mark.parametrize("case", CASES)
def test_operators_are_written_in_one_way_with_the_same_values(case: str) -> None:
    make, expected, wanted = CASES[case]
    module = module_of(make)
    assert operators(unify(module)) in (expected, [*expected, "reshape"])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(result_of(module, DATA), wanted(DATA), rtol=1e-5, atol=1e-6)


@pytest.mark.compiles
@pytest.mark.parametrize(
    "whole",
    [relax.op.floor, relax.op.trunc, lambda quotient: relax.op.astype(quotient, "int32")],
    ids=["floor", "trunc", "integer"],
)
def test_rows_of_pixels_are_those_of_an_exact_quotient(whole: Callable[[Any], Any]) -> None:
    width, pixels = np.float32(41), np.arange(41 * 41, dtype=np.float32).reshape(1, -1)
    assert (np.floor(pixels * (1 / width)) != np.floor(pixels / width)).any()
    module = module_of(lambda build, x: whole(build.emit(relax.op.divide(x, constant(width, "float32")))), pixels.shape)
    assert "divide" in operators(unify(module))
    np.testing.assert_array_equal(result_of(module, pixels), np.floor(pixels / width))


def _in_a_rim(value: float, mode: str = "constant") -> Callable[[relax.BlockBuilder, Any], Any]:
    def make(build: relax.BlockBuilder, data: Any) -> Any:
        padded = build.emit(relax.op.nn.pad(data, [0, 0, 0, 0, 1, 0, 2, 1], mode, value))
        return relax.op.nn.conv2d(padded, constant(KERNEL), strides=[2, 1], padding=[0, 1, 1, 0])

    return make


@pytest.mark.compiles
def test_a_convolution_of_an_image_in_a_rim_of_zeros_has_that_padding() -> None:
    module = module_of(_in_a_rim(0))
    unified = unify(module)
    assert operators(unified) == ["nn.conv2d"]
    [convolution] = [part for part in parts_of(unified["main"]) if operator_name(part)]
    assert [int(each) for each in convolution.attrs.padding] == [1, 3, 1, 1]
    wanted = convolved(DATA, KERNEL, pads=(1, 3, 1, 1), stride=(2, 1))
    np.testing.assert_allclose(result_of(module, DATA), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("value", "mode"), [(1, "constant"), (0, "reflect")])
def test_other_rims_stay(value: float, mode: str) -> None:
    assert operators(unify(module_of(_in_a_rim(value, mode)))) == ["nn.pad", "nn.conv2d"]


# Quantisation that is spelled out by elementwise operators is found again, and nothing else is taken for it.


@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_what_is_spelled_out_is_found_again(dtype: str, zero_point: int) -> None:
    def pair(build: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        steps = constant(np.float32(0.1)), constant(np.int32(zero_point))
        return relax.op.dequantize(build.emit(relax.op.quantize(data, *steps, out_dtype=dtype)), *steps)

    pairs = module_of(pair, (2, 3))
    spelled = spell_out(pairs)
    assert not has_quantisation(spelled)
    assert tvm_ffi.structural_equal(recognise(spelled), pairs)


def test_a_product_that_adds_a_dimension_is_no_dequantisation() -> None:
    def product(build: relax.BlockBuilder, data: relax.Var) -> relax.Expr:
        return relax.op.multiply(build.emit(relax.op.astype(data, "float32")), constant(np.float32([[[0.1]]])))

    before = module_of(product, (2, 3), "uint8")
    after = recognise(before)
    assert tvm_ffi.structural_equal(after, before)
    assert [int(size) for size in after["main"].body.body.ty.shape] == [1, 2, 3]
