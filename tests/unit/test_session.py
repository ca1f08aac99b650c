"""Sessions: their threads are as many as was asked for and end with them; some weights are transformed at load."""

import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.agents import packaged
from support.agreement import outputs_of
from support.emulated import emulated_outputs
from support.networks import Graph, begun
from support.quantised_networks import FORMS, quantise, random_samples

from edgedeploy.building import Prepared, build, prepare
from edgedeploy.compile.output import packing
from edgedeploy.compile.output.explain import functions
from edgedeploy.compile.output.packing import lifted
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.errors import PackageError
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.package.archive import read_manifest, read_package, weights_of
from edgedeploy.package.manifest import LIBRARY_NAME
from edgedeploy.runtime.session import Session
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

pytestmark = pytest.mark.compiles

IMAGE = {"data": np.random.default_rng(0).standard_normal((1, 16, 96, 96)).astype(np.float32)}


def shared_work(path: Path) -> Path:
    graph, data = begun(1, 16, 96, 96)
    wide = graph.node("Relu", graph.conv(data, 16, 48, 3, pads=[1] * 4, strides=[2, 2]))
    small = graph.node("Relu", graph.conv(wide, 48, 160, 5, strides=[5, 5]))
    return graph.save(path, small)


@pytest.fixture(scope="module")
def two_processors() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one processor")


@pytest.fixture(scope="module")
def package(two_processors: None, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(str(shared_work(tmp_path_factory.mktemp("threads") / "net.onnx")), resolve("local"))


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def added_threads(action: Callable[[], object]) -> int:
    before = native_threads()
    _kept = action()
    return native_threads() - before


def of_each_thread(name: str) -> list[str]:
    """What the kernel says of each thread of this process, in its file of that name."""
    return [(each / name).read_text(encoding="ascii") for each in Path("/proc/self/task").iterdir()]


def times_asleep() -> int:
    """How often threads of this process have given their processor away of their own accord."""
    lines = [line for text in of_each_thread("status") for line in text.splitlines()]
    return sum(int(line.split()[-1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def nanoseconds_queued() -> int:
    """How long threads of this process were ready to run while other processes had the processors."""
    return sum(int(text.split()[1]) for text in of_each_thread("schedstat"))


def outputs(session: Session) -> np.ndarray:
    [array] = session.run(IMAGE).values()
    return array


def test_the_calling_thread_is_one_of_them(package: Prepared) -> None:
    opened = [package.open(threads=1)]  # what TVM itself starts is there now
    assert added_threads(lambda: opened.append(package.open(threads=1))) == 0
    assert added_threads(lambda: opened.append(package.open(threads=2))) == 1


def test_they_end_with_the_session(package: Prepared) -> None:
    session = package.open(threads=2)
    outputs(session)
    gc.collect()  # sessions of other tests end here, not below
    before = native_threads()
    del session
    gc.collect()
    assert native_threads() == before - 1


@pytest.mark.usefixtures("two_processors")
def test_any_number_gives_the_same_bits(each_cpu: str, tmp_path: Path) -> None:
    prepared = prepare(str(shared_work(tmp_path / "net.onnx")), resolve("local"))
    alone, together = prepared.open(threads=1), prepared.open(threads=2)
    for _ in range(200):
        assert np.array_equal(outputs(alone), outputs(together))


def test_they_stay_awake_from_one_function_to_the_next(package: Prepared) -> None:
    session = package.open(threads=2)
    call = session.bind(IMAGE)
    call()
    runs, batches, asleep, deadline = 5, 40, [], time.monotonic() + 120
    while len(asleep) < batches and time.monotonic() < deadline:
        before, queued = times_asleep(), nanoseconds_queued()
        for _ in range(runs):
            call()
        if nanoseconds_queued() - queued < 200_000:  # else other processes had sent one thread to sleep, which the
            asleep.append(times_asleep() - before)  # other one waits for; to wake up takes some microseconds
    assert len(asleep) == batches, "other processes had the processors all the time"
    assert sum(asleep) < batches * runs / 2


def test_they_wake_after_a_rest(package: Prepared) -> None:
    session = package.open(threads=2)
    expected = outputs(session)
    for pause in (0.0, 0.001, 0.05):
        time.sleep(pause)
        assert np.array_equal(outputs(session), expected)


def test_two_sessions_run_at_the_same_time(package: Prepared) -> None:
    expected, wrong = outputs(package.open(threads=1)), []

    def call() -> None:
        session = package.open(threads=2)
        wrong.extend(number for number in range(50) if not np.array_equal(outputs(session), expected))

    with ThreadPoolExecutor(2) as pool:
        for caller in [pool.submit(call) for _ in range(2)]:
            caller.result()
    assert not wrong


@pytest.mark.usefixtures("two_processors")
def test_each_stores_its_own_values_alone(tmp_path: Path) -> None:
    """Channels of two feature maps as heads of rows: where one map follows the other depends on the head."""
    graph, data = begun(1, 8, 14, 14)
    joined = graph.node("Concat", graph.conv(data, 8, 192, 1), graph.conv(data, 8, 192, 1), axis=1)
    heads = graph.reshape(joined, 1, 8, 48, 196)
    path = graph.save(tmp_path / "net.onnx", graph.node("Transpose", heads, perm=[0, 1, 3, 2]))
    prepared = prepare(str(path), resolve("local"))
    image = {"data": np.random.default_rng(0).standard_normal((1, 8, 14, 14)).astype(np.float32)}
    [expected] = prepared.open(threads=1).run(image).values()
    for _ in range(30):
        session = prepared.open(threads=2)
        for _ in range(10):
            [found] = session.run(image).values()
            np.testing.assert_array_equal(found, expected)


# Weights that grow by Winograd's transform lie in packages as they were, and are transformed when these are loaded; the
# results are those of weights that were transformed when the network was built, to the last bit.

LOCAL = load_board("local")

# Kernels of so many bytes: 3x3 of 64 to 64 channels.
KERNELS = 4 * 9 * 64 * 64


def layers(path: Path, height: int | str = 24) -> Path:
    graph = Graph()
    first = graph.conv(graph.input("data", [1, 4, height, 24]), 4, 64, 3, pads=[1] * 4)
    kernels = graph.normal(64, 64, 3, 3, scale=0.1)
    second = graph.node("Conv", graph.node("Relu", first), kernels, pads=[1] * 4)
    third = graph.node("Conv", graph.node("Relu", second), kernels, graph.normal(64), pads=[1] * 4)
    return graph.save(path, third)


def image(height: int = 24) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((1, 4, height, 24)).astype(np.float32)


def test_a_package_holds_each_kernel_once_as_it_was(tmp_path: Path) -> None:
    built = packaged(layers(tmp_path / "net.onnx"))
    _, contents = read_package(built.path)
    [weights] = built.manifest.transformed
    assert (weights.shape, weights.dtype) == ([3, 3, 64, 64], "float32")
    assert len(contents[weights.name]) == KERNELS
    assert built.manifest.memory.constants_bytes > 4 * KERNELS  # both layers' transformed ones, as in memory
    assert len(contents["model.so"]) < KERNELS


def test_outputs_are_those_of_weights_transformed_when_it_was_built(tmp_path: Path) -> None:
    path = layers(tmp_path / "net.onnx")
    package = packaged(path).path
    compiled = compile_network(read_onnx(path), LOCAL)
    assert any(each["template"] == "winograd convolution" for each in functions(compiled))
    [wanted] = outputs_of(compiled, {"data": image()})
    for threads in (1, 2):
        [found] = Session.open(package, threads).run({"data": image()}).values()
        np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.quick("rpi5", "rpi-armhf")
@pytest.mark.parametrize("board", ["rpi3", "rpi4", "rpi5", "rpi-armhf"])
def test_so_they_are_on_arm(tmp_path: Path, board: str) -> None:
    network, profile = read_onnx(layers(tmp_path / "net.onnx")), load_board(board)
    found = []
    for name, when in (("built", False), ("loaded", True)):
        (tmp_path / name).mkdir()
        lowered = lower_network(network, profile, at_load=when)
        assert bool(lifted(lowered.module).weights) == when
        found += emulated_outputs(lowered, profile, {"data": image()}, tmp_path / name)
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))


@pytest.mark.parametrize("board", ["local", "rpi4", "rpi5"])
def test_bytes_whose_products_are_summed_up_in_float_are_transformed_from_bytes(tmp_path: Path, board: str) -> None:
    source = layers(tmp_path / "float.onnx")
    path = quantise(source, tmp_path / "net.onnx", FORMS["pairs-s8s8-channels"], random_samples(source))
    network, profile = read_onnx(path), load_board(board)
    weights = lifted(lower_network(network, profile, at_load=True).module).weights
    floats = [each for each in functions(lower_network(network, profile)) if each["template"] == "winograd convolution"]
    assert all(each.dtype == np.int8 for each in weights)
    assert bool(weights) == bool(floats)  # as the board's cost says


def test_entries_share_weights_and_what_is_made_of_them(tmp_path: Path) -> None:
    path = layers(tmp_path / "net.onnx", height="h")
    source = find_source(str(path), {"data": [1, 4, 24, 24]}).with_further([{"data": [1, 4, 32, 24]}], [])
    package = build(source, resolve("local"), tmp_path / "net.tar.gz").path
    assert len(read_manifest(package).transformed) == 1
    session = Session.open(package)
    for height in (24, 32):
        compiled = compile_network(find_source(str(path), {"data": [1, 4, height, 24]}).read(), LOCAL)
        [wanted] = outputs_of(compiled, {"data": image(height)})
        [found] = session.run({"data": image(height)}).values()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_weights_that_grow_little_are_transformed_by_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = read_onnx(layers(tmp_path / "net.onnx"))
    assert len(lifted(lower_network(network, LOCAL, at_load=True).module).weights) == 1
    monkeypatch.setattr(packing, "LEAST_GROWTH", 1 << 30)
    assert not lifted(lower_network(network, LOCAL, at_load=True).module).weights


@pytest.mark.parametrize("shape", [[4, 24, 24], [1, 1, 4, 24, 24]], ids=["lower", "higher"])
def test_a_manifest_of_another_rank_than_the_librarys_is_refused(tmp_path: Path, shape: list[int]) -> None:
    manifest, contents = read_package(packaged(layers(tmp_path / "net.onnx")).path)
    manifest = manifest.model_copy(update={"inputs": [manifest.inputs[0].model_copy(update={"shape": shape})]})
    session = Session(manifest, contents[LIBRARY_NAME], weights=weights_of(manifest, contents))
    given = {"data": image().reshape(shape)}
    for use in (session.run, session.measure, session.function_times):
        with pytest.raises(PackageError, match="takes other inputs than its manifest describes"):
            use(given)
