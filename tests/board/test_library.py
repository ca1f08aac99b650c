"""The library for programs of users' own: what docs/your-program.md and edgedeploy.h promise."""

import ctypes
import gc
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import ROOT, Command
from support import library_programs
from support.agents import assert_needs_little, digits_with_use, emulation_here, unpack, unpacked
from support.commands import generous, json_of, need, output_of, printed, put, refused, started, until
from support.library_programs import EXAMPLES, LAYOUT, Making, compiled, digit_image, said
from support.networks import Graph, begun, tiny
from support.profiles import write_profile

from edgedeploy.agent import edgedeploy_runtime as library
from edgedeploy.agent.library import platform_tag, write_library
from edgedeploy.api.local_runtime import Network as HostNetwork
from edgedeploy.building import build
from edgedeploy.demo.program import Detector
from edgedeploy.errors import InputError, PackageError
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.target.triples import architecture_of
from edgedeploy.vision.results import Detection
from edgedeploy.zoo.source import find_source

OK, MISUSED, INPUT, PACKAGE = 0, 2, 7, 8
ABI = ROOT / "tests" / "support" / "library_abi.txt"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tiny(tmp_path_factory.mktemp("model") / "net.onnx")
    unpacked(path)
    return path


@pytest.fixture(scope="module")
def package(model: Path) -> Path:
    return model.with_suffix("")


@pytest.fixture
def opened(network: Making, package: Path) -> Iterator[library.Network]:
    with network(package) as made:
        yield made


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another network with the same input, and more outputs."""
    graph = Graph(seed=5)
    data = graph.input("data", [1, 3, 8, 8])
    relu = graph.node("Relu", graph.conv(data, 3, 4, 3, pads=[1, 1, 1, 1]))
    path = tmp_path_factory.mktemp("model") / "other.onnx"
    unpacked(graph.save(path, graph.node("GlobalAveragePool", relu), relu))
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_digits("local", tmp_path_factory.mktemp("digits"))


def unpacked_digits(board: str, folder: Path) -> Path:
    return unpack(digits_with_use(folder / "digits.tar.gz", board), folder / "digits")


def images(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(7)
    return [generator.standard_normal((1, 3, 8, 8)).astype(np.float32) for _ in range(count)]


def reference(model: Path, data: np.ndarray) -> dict[str, np.ndarray]:
    session = cpu_session(model)
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, {"data": data}), strict=True))


def assert_agree(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert (found[name].shape, found[name].dtype) == (values.shape, values.dtype)
        np.testing.assert_allclose(found[name], values, atol=1e-4 * np.abs(values).max() + 1e-6, rtol=0)


def test_the_interface_is_the_one_that_is_written_down(written: Path, tmp_path: Path) -> None:
    """Programs that were linked earlier need all of it: only add to that file. Nothing else is exported."""
    (tmp_path / "layout.c").write_text(LAYOUT)
    layout = said([compiled([tmp_path / "layout.c"], tmp_path / "layout", written, board="local")])
    symbols = library_programs.exported(written / "lib" / "libedgedeploy.so")
    assert [
        *library_programs.declarations(written / "include" / "edgedeploy.h"),
        *layout,
        *symbols,
    ] == ABI.read_text().splitlines()
    assert all(re.fullmatch(r"ed_.*@EDGEDEPLOY_1", symbol) for symbol in symbols)


def test_it_is_small_and_needs_only_an_old_glibc(written: Path) -> None:
    assert_needs_little(written / "lib" / "libedgedeploy.so.1", "local", most_bytes=4_000_000)


def test_outputs_are_those_of_onnxruntime(opened: library.Network, model: Path, package: Path) -> None:
    [data] = images(1)
    assert_agree(opened(data), reference(model, data))
    assert_agree(opened.run({"data": data.astype(np.float64)}), reference(model, data))
    [spec] = opened.inputs
    assert (spec.name, spec.dtype, spec.shape, spec.layout) == ("data", np.float32, (1, 3, 8, 8), "NCHW")
    assert opened.release == str(package.resolve())


def test_what_was_set_stays_and_begins_as_zeros(opened: library.Network, model: Path) -> None:
    [data] = images(1)
    assert_agree(opened.run({}), reference(model, np.zeros_like(data)))
    opened(data)
    assert_agree(opened.run({}), reference(model, data))


def test_outputs_outlive_the_network(network: Making, model: Path, package: Path) -> None:
    first, second = images(2)
    with network(package) as opened:
        kept = opened(first)
        opened(second)
    assert_agree(kept, reference(model, first))


def test_networks_run_at_the_same_time_in_one_process(network: Making, model: Path, package: Path, other: Path) -> None:
    """Two of one library, which share its threads, and one of another; each by a thread of its own."""
    data = images(50)
    files = [model, model, other]
    opened = [network(file.with_suffix(""), threads=min(2, len(os.sched_getaffinity(0)))) for file in files]
    wanted = [[reference(file, each) for each in data[:5]] for file in files]

    def work(place: int) -> None:
        for turn in range(200):
            assert_agree(opened[place](data[turn % 5]), wanted[place][turn % 5])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    for each in opened:
        each.close()


def test_one_network_is_used_by_several_threads(opened: library.Network, model: Path) -> None:
    data = images(4)
    wanted = [reference(model, each) for each in data]

    def work(place: int) -> None:
        for _ in range(100):
            assert_agree(opened(data[place]), wanted[place])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_threads_change_while_another_network_of_the_library_runs(network: Making, model: Path, package: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    [data] = images(1)
    wanted = reference(model, data)
    with network(package, threads=2) as first, network(package) as second:
        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                assert_agree(first(data), wanted)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(work)
            for turn in range(50):
                second.threads = 1 + turn % 2
                assert second.threads == first.threads == 1 + turn % 2
            ended.set()
            running.result()


def test_a_network_is_closed_while_another_thread_uses_it(network: Making, package: Path) -> None:
    for _ in range(20):
        opened = network(package)
        handle, calls = opened._handle, opened._library
        statuses: list[int] = []

        def work(statuses: list[int] = statuses, handle: Any = handle, calls: Any = calls) -> None:
            while not statuses or statuses[-1] == OK:
                statuses.append(calls.ed_run(handle))

        thread = threading.Thread(target=work)
        thread.start()
        while not statuses:
            time.sleep(0)
        opened.close()
        thread.join(60)
        assert statuses[-1] == MISUSED


def test_the_callers_arithmetic_keeps_its_subnormal_numbers(network: Making, package: Path) -> None:
    small = np.full(64, 1e-39, np.float32)
    with network(package) as opened:
        opened.run({})
    assert np.all(small * np.float32(0.5) != 0)


def test_networks_give_their_memory_back(network: Making, package: Path) -> None:
    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    def turn() -> None:
        with network(package) as opened:
            opened.run({})

    for _ in range(20):
        turn()
    before = resident()
    for _ in range(300):
        turn()
    assert resident() - before < 300  # less than a page each


def test_each_shape_of_a_package_is_an_entry(network: Making, tmp_path: Path) -> None:
    graph, data = begun("n", 3, 8, 8)
    path = graph.save(tmp_path / "net.onnx", graph.node("GlobalAveragePool", graph.conv(data, 3, 8, 3)))
    source = find_source(str(path), {"data": [1, 3, 8, 8]}).with_further([], [2])
    package = unpack(build(source, resolve("local"), tmp_path / "net.tar.gz").path, tmp_path / "package")
    two = np.concatenate(images(2))
    with network(package) as opened:
        assert opened.entries == len(source.of_each_entry())
        shapes = []
        for entry in range(opened.entries):
            opened.set_entry(entry)
            shapes.append(opened.inputs[0].shape)
            data = two[: shapes[-1][0]]
            assert_agree(opened(data), reference(path, data))
        assert (2, 3, 8, 8) in shapes
        with pytest.raises(library.NetworkError, match="there is no entry"):
            opened.set_entry(opened.entries)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    view = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    view[:] = array
    return view


def test_an_input_is_read_from_the_callers_buffer(opened: library.Network, model: Path) -> None:
    first, second = images(2)
    buffer = aligned(first)
    calls, handle = opened._library, opened._handle
    assert calls.ed_bind_input(handle, 0, buffer.ctypes.data, buffer.nbytes) == OK
    assert_agree(opened.run({}), reference(model, first))
    buffer[:] = second
    assert_agree(opened.run({}), reference(model, second))
    opened(first)  # a copy again
    np.testing.assert_array_equal(buffer, second)
    buffer[:] = 0
    assert_agree(opened.run({}), reference(model, first))
    assert calls.ed_bind_input(handle, 0, buffer.ctypes.data, buffer.nbytes) == OK
    assert calls.ed_bind_input(handle, 0, None, 0) == OK
    assert_agree(opened.run({}), reference(model, np.zeros_like(first)))


def test_a_buffer_that_cannot_be_read_is_refused(opened: library.Network) -> None:
    buffer = aligned(images(1)[0])
    calls, handle = opened._library, opened._handle
    assert calls.ed_bind_input(handle, 0, buffer.ctypes.data + 4, buffer.nbytes) == MISUSED
    assert b"no multiple of 64 bytes" in calls.ed_error()
    assert calls.ed_bind_input(handle, 0, buffer.ctypes.data, buffer.nbytes - 4) == INPUT
    assert calls.ed_run(handle) == OK


def test_wrong_calls_are_told_and_change_nothing(opened: library.Network, model: Path, package: Path) -> None:
    [data] = images(1)
    size = data.nbytes
    calls, handle, text = opened._library, opened._handle, str(package).encode()
    place, tensor, values = ctypes.c_void_p(), library._Tensor(), data.ctypes.data
    none = ctypes.POINTER(ctypes.c_void_p)()
    wrong = [
        (calls.ed_open(text, 0, none), MISUSED, "network is null"),
        (calls.ed_open(None, 0, ctypes.byref(place)), MISUSED, "release is null"),
        (calls.ed_open(text, -1, ctypes.byref(place)), MISUSED, "-1 threads"),
        (calls.ed_open(text, 100_000, ctypes.byref(place)), INPUT, "100000 threads were asked for"),
        (calls.ed_open(b"", 0, ctypes.byref(place)), MISUSED, "is not a model name"),
        (calls.ed_open(b"..", 0, ctypes.byref(place)), MISUSED, "is not a model name"),
        (calls.ed_open(b"x" * 100_000, 0, ctypes.byref(place)), MISUSED, "is not a model name"),
        (calls.ed_open(b"/x" * 10_000, 0, ctypes.byref(place)), PACKAGE, "there is no release"),
        (calls.ed_open(b"/no/such", 0, ctypes.byref(place)), PACKAGE, "there is no release /no/such"),
        (calls.ed_open(b"/proc", 0, ctypes.byref(place)), PACKAGE, "manifest.json"),
        (calls.ed_set_input(handle, 0, None, size), MISUSED, "are null"),
        (calls.ed_set_input(handle, 1, values, size), MISUSED, "there is no input 1"),
        (calls.ed_set_input(handle, 2**64 - 1, values, size), MISUSED, "there is no input"),
        (calls.ed_set_input(handle, 0, values, size - 1), INPUT, f"'data' has {size} bytes: {size - 1} were given"),
        (calls.ed_bind_input(handle, 7, values, size), MISUSED, "there is no input 7"),
        (calls.ed_describe_input(handle, 1, ctypes.byref(tensor)), MISUSED, "there is no tensor 1"),
        (calls.ed_describe_output(handle, 0, None), MISUSED, "tensor is null"),
        (calls.ed_get_output(handle, 0, none), MISUSED, "values is null"),
        (calls.ed_get_output(handle, 0, ctypes.byref(place)), MISUSED, "there are no outputs yet"),
        (calls.ed_get_output(handle, 9, ctypes.byref(place)), MISUSED, "there is no output 9"),
        (calls.ed_set_threads(handle, 0), MISUSED, "0 threads"),
        (calls.ed_set_entry(handle, 1), MISUSED, "there is no entry 1"),
    ]
    assert [status for status, _, _ in wrong] == [wanted for _, wanted, _ in wrong]
    assert calls.ed_set_input(handle, 0, None, size) == MISUSED
    assert place.value is None
    assert_agree(opened(data), reference(model, data))


@pytest.mark.parametrize(
    ("release", "threads", "code", "said"),
    [
        ("/no/such", 0, PACKAGE, "there is no release /no/such: No such file"),
        ("/proc", 0, PACKAGE, "cannot open manifest.json of the package: No such file"),
        ("../x\n", 0, PACKAGE, "there is no release"),
        ("Größe", 0, MISUSED, "is not a model name"),
        ("a b", 0, MISUSED, "is not a model name: the path of a folder has a slash in it"),
    ],
)
def test_errors_have_words(network: Making, release: str, threads: int, code: int, said: str) -> None:
    with pytest.raises(library.NetworkError, match=said) as caught:
        network(release, threads=threads)
    assert caught.value.code == code


@pytest.mark.parametrize("handle", [None, 0x10, 2**64 - 1])
def test_a_network_that_is_not_open_is_known_as_that(network: Making, package: Path, handle: int | None) -> None:
    opened = network(package)
    calls, number = opened._library, handle
    if handle == 0x10:  # one that was open
        number = opened._handle.value
    opened.close()
    place = ctypes.c_void_p()
    assert (calls.ed_run(number), calls.ed_error()) == (MISUSED, b"the network is not open")
    assert calls.ed_set_input(number, 0, None, 0) == calls.ed_set_threads(number, 1) == MISUSED
    assert calls.ed_get_output(number, 0, ctypes.byref(place)) == MISUSED
    assert (calls.ed_input_count(number), calls.ed_entry_count(number), calls.ed_threads(number)) == (0, 0, 0)
    assert calls.ed_release(number) is None
    assert calls.ed_close(number) == (OK if number is None else MISUSED)


def test_errors_belong_to_the_thread_that_made_them(opened: library.Network) -> None:
    calls = opened._library
    assert calls.ed_open(b"/no/such", 0, ctypes.byref(ctypes.c_void_p())) == PACKAGE
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(calls.ed_error).result() == b""
    assert b"/no/such" in calls.ed_error()


@pytest.mark.parametrize("name", ["manifest.json", "model.so"])
def test_a_damaged_package_is_refused(network: Making, model: Path, tmp_path: Path, name: str) -> None:
    package = unpack(model.with_suffix(".tar.gz"), tmp_path / "package")
    content = (package / name).read_bytes()
    damages = [content[: len(content) // 2], b"", b"\x7fELF" + bytes(len(content) - 4), os.urandom(len(content))]
    for damaged in damages:
        (package / name).unlink()
        (package / name).write_bytes(damaged)
        with pytest.raises(library.NetworkError) as caught:
            network(package)
        assert caught.value.code == PACKAGE


def test_arrays_that_fit_no_input_are_refused(opened: library.Network) -> None:
    [data] = images(1)
    for arrays, named in (
        ((data[:, :2],), r"has shape \(1, 2, 8, 8\)"),
        ((data.astype(np.complex64),), "has dtype complex64"),
        ((), "0 arrays were given"),
    ):
        with pytest.raises(library.NetworkError, match=named):
            opened(*arrays)
    with pytest.raises(library.NetworkError, match="unknown input 'x': the network's inputs are data"):
        opened.run({"x": data})


@pytest.fixture
def link(package: Path, tmp_path: Path) -> Path:
    """A link to a package, as that to the release in use is one."""
    path = tmp_path / "current"
    path.symlink_to(package)
    return path


def switch(link: Path, target: Path) -> None:
    """Lead a link elsewhere, as a release is switched: by one rename."""
    temporary = link.with_name("next")
    temporary.symlink_to(target)
    temporary.replace(link)


def run_until(done: Callable[[], bool], opened: library.Network) -> None:
    until(lambda: opened.run({}) and done(), 60)


def test_a_network_follows_releases(network: Making, model: Path, package: Path, other: Path, link: Path) -> None:
    [data] = images(1)
    told: list[tuple[str, str | None]] = []
    with network(link, follow=True, switched=lambda *what: told.append(what)) as opened:
        assert_agree(opened(data), reference(model, data))
        switch(link, other.with_suffix(""))
        run_until(lambda: bool(told), opened)
        assert told == [(str(other.with_suffix("")), None)]
        assert opened.release == str(other.with_suffix("").resolve())
        assert_agree(opened.run({}), reference(other, data))  # the input's values went along
        switch(link, package)
        run_until(lambda: len(told) == 2, opened)
        assert_agree(opened.run({}), reference(model, data))


def test_a_bound_buffer_moves_to_the_next_release(network: Making, other: Path, link: Path) -> None:
    first, second = images(2)
    buffer = aligned(first)
    told: list[str] = []
    with network(link, follow=True, switched=lambda release, _: told.append(release)) as opened:
        assert opened._library.ed_bind_input(opened._handle, 0, buffer.ctypes.data, buffer.nbytes) == OK
        opened.run({})
        switch(link, other.with_suffix(""))
        run_until(lambda: bool(told), opened)
        buffer[:] = second
        assert_agree(opened.run({}), reference(other, second))


def test_a_bad_release_is_told_once(network: Making, model: Path, other: Path, link: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    put(broken / "manifest.json", "{}")
    [data] = images(1)
    told: list[tuple[str, str | None]] = []
    with network(link, follow=True, switched=lambda *what: told.append(what)) as opened:
        opened(data)
        switch(link, broken)
        run_until(lambda: bool(told), opened)
        for _ in range(100):
            assert_agree(opened.run({}), reference(model, data))
        [(release, error)] = told
        assert release == str(broken)
        assert "manifest.json is not sound" in (error or "")
        link.unlink()  # and where there is none any more
        assert_agree(opened.run({}), reference(model, data))
        link.symlink_to(other.with_suffix(""))
        run_until(lambda: len(told) == 2, opened)
        assert_agree(opened.run({}), reference(other, data))


def test_the_inference_raises_a_callbacks_error(network: Making, other: Path, link: Path) -> None:
    def told(*_: object) -> None:
        assert opened.inputs[0].name == "data"
        assert opened._library.ed_run(opened._handle) == MISUSED
        raise KeyError("mine")

    with network(link, follow=True, switched=told) as opened:
        switch(link, other.with_suffix(""))
        with pytest.raises(KeyError, match="mine"):
            run_until(lambda: False, opened)
        opened.run({})


def test_a_models_name_means_its_release_in_use(
    network: Making, package: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    releases = tmp_path / ".local" / "share" / "edgedeploy" / "releases" / "net"
    releases.mkdir(parents=True)
    with pytest.raises(library.NetworkError, match=f"there is no release {releases}/current"):
        network("net")
    for identity, folder in (("first", package), ("second", other.with_suffix(""))):
        (releases / identity).symlink_to(folder)
    (releases / "current").symlink_to("first")  # relative, as pushes write it
    told: list[str] = []
    with network("net") as once, network("net", follow=True, switched=lambda name, _: told.append(name)) as opened:
        assert once.release == opened.release == str(package.resolve())
        switch(releases / "current", Path("second"))
        run_until(lambda: bool(told), opened)
        assert opened.release == str(other.with_suffix("").resolve())
        once.run({})
        assert once.release == str(package.resolve())


def test_only_a_link_can_be_followed(network: Making, package: Path) -> None:
    with pytest.raises(library.NetworkError, match="is not a link to a release"):
        network(package, follow=True)


def test_every_example_has_less_than_60_lines() -> None:
    files = [path for name in ("c", "cpp", "python", "systemd") for path in (EXAMPLES / name).iterdir()]
    assert len(files) >= 5
    for path in files:
        assert len(path.read_text().splitlines()) < 60, path


def assert_classifies(digits: Path, image: Path, *command: object) -> list[str]:
    """What a program prints of an image, which must be what the package's demo says of it."""
    lines = said([*command, image, digits])
    library_programs.assert_as_python_says(lines, digits.with_suffix(".tar.gz"), image)
    return lines


@pytest.mark.parametrize(("toolchain", "how"), [("native", "shared"), ("zig", "shared"), ("zig", "static")])
def test_the_example_in_c_classifies(written: Path, digits: Path, tmp_path: Path, toolchain: str, how: str) -> None:
    source = EXAMPLES / "c" / "detect.c"
    program = compiled([source], tmp_path / "detect", written, board="local", toolchain=toolchain, how=how)
    image = digit_image(tmp_path)
    assert assert_classifies(digits, image, program)[0] == "3 0.998865"
    done = subprocess.run([program, image, "/no/such"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:38]) == (1, "detect: there is no release /no/such: ")
    done = subprocess.run([program, "/no/such", digits], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "detect: that is not an image\n")


def frame_of_digit(digits: Path, width: int, height: int) -> tuple[bytes, Detection]:
    """The image of a digit as a camera gives it, and the likeliest class of what such a frame stands for."""
    image = cv2.resize(cv2.imread(str(ROOT / "models" / "digit.png")), (width, height))
    frame = cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420)
    best, *_ = Detector(digits.with_suffix(".tar.gz")).detect(cv2.cvtColor(frame, cv2.COLOR_YUV2BGR_I420))
    return frame.tobytes(), best


def test_pkg_config_knows_the_library(written: Path, digits: Path, tmp_path: Path) -> None:
    need("pkg-config", "pkg-config")
    need("cc", "gcc")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(written / "lib" / "pkgconfig")}
    flags = printed("pkg-config", "--cflags", "--libs", "edgedeploy", env=environment)
    printed("cc", EXAMPLES / "c" / "detect.c", *flags.split(), "-o", tmp_path / "detect")
    called = ["env", f"LD_LIBRARY_PATH={written / 'lib'}", tmp_path / "detect"]
    assert_classifies(digits, digit_image(tmp_path), *called)


# Zig builds its C++ library first.
@pytest.mark.parametrize("toolchain", ["native", pytest.param("zig", marks=pytest.mark.slow)])
def test_the_examples_in_cxx_classify_and_follow_releases(
    command: Command, written: Path, digits: Path, tmp_path: Path, toolchain: str
) -> None:
    """They classify and follow releases. CMake builds them: with zig over the static library."""
    need("cmake", "cmake")
    options = [f"-DCMAKE_PREFIX_PATH={written}", f"-DSTATIC_RUNTIME={'ON' if toolchain == 'zig' else 'OFF'}"]
    if toolchain == "zig":
        file = tmp_path / "zig.cmake"
        output_of(command, "toolchains", "cmake", "local", "--toolchain", "zig", "--output", file)
        options.append(f"-DCMAKE_TOOLCHAIN_FILE={file}")
    printed("cmake", "-S", EXAMPLES / "cpp", "-B", tmp_path / "build", *options)
    printed("cmake", "--build", tmp_path / "build")
    assert_classifies(digits, digit_image(tmp_path), tmp_path / "build" / "detect")
    second = unpacked_digits("local", tmp_path)
    link = tmp_path / "current"
    link.symlink_to(digits)
    frame, best = frame_of_digit(digits, 16, 16)
    pipe = subprocess.PIPE
    with started(tmp_path / "build" / "watch", 16, 16, link, stdin=pipe, stdout=pipe) as process:

        def answer() -> str:
            process.stdin.write(frame)
            process.stdin.flush()
            return process.stdout.readline().decode().strip()

        def assert_right(line: str) -> None:
            label, score = line.partition(": ")[2].partition(",")[0].split()
            assert label == best.label
            assert float(score) == pytest.approx(best.score, abs=1e-4)

        assert_right(answer())
        switch(link, second)
        end = time.monotonic() + generous(60)
        while (line := answer()) != f"changed to {second}":
            assert_right(line)
            assert time.monotonic() < end
        assert_right(process.stdout.readline().decode())
        assert_right(answer())
        process.stdin.close()
        assert process.wait(generous(60)) == 0


def test_the_service_takes_frames(written: Path, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit's commands, as systemd calls them."""
    unit = (EXAMPLES / "systemd" / "edgedeploy-watch@.service").read_text()
    model = tmp_path / ".local" / "share" / "edgedeploy" / "releases" / "digits"
    model.mkdir(parents=True)
    (model / "current").symlink_to(digits)
    program = tmp_path / ".local" / "bin" / "edgedeploy-watch"
    program.parent.mkdir()
    compiled([EXAMPLES / "cpp" / "watch.cc"], program, written, board="local", toolchain="native")
    monkeypatch.setenv("HOME", str(tmp_path))

    def words(field: str) -> list[str]:
        [line] = [line for line in unit.splitlines() if line.startswith(f"{field}=")]
        for letter, meaning in (("%h", tmp_path), ("%t", tmp_path), ("%i", "digits")):
            line = line.replace(letter, str(meaning))
        return shlex.split(line.partition("=")[2])

    frame, best = frame_of_digit(digits, 640, 480)
    for _ in range(2):  # when it is started again, the pipe is there
        subprocess.run(words("ExecStartPre"), check=True)
        with subprocess.Popen(words("ExecStart"), stdout=subprocess.PIPE, text=True) as process:
            for number in range(2):
                (tmp_path / "digits.frames").write_bytes(frame)
                assert process.stdout.readline().startswith(f"frame {number}: {best.label} 0.")
            process.terminate()


CHECKS = """
#include <edgedeploy.hpp>
#include <cassert>
#include <iostream>
int main(int, char** words) {
  using edgedeploy::Error;
  using edgedeploy::Network;
  const auto refused = [](ed_status status, auto work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.status() == status) return;
    }
    std::cout << "not refused with " << status << std::endl;
  };
  refused(ED_PACKAGE, [] { Network("/no/such"); });
  Network first(words[1]);
  refused(ED_MISUSED, [&] { first.output<float>(0); });
  refused(ED_INPUT, [&] { first.set_input(0, std::vector<std::int32_t>(192)); });
  refused(ED_INPUT, [&] { first.set_input(0, std::vector<float>(191)); });
  refused(ED_MISUSED, [&] { first.set_input(1, std::vector<float>(192)); });
  first.set_input(0, std::vector<float>(192, 1.0f));
  first.run();
  refused(ED_INPUT, [&] { first.output<double>(0); });
  Network second = std::move(first);
  second.run();
  refused(ED_MISUSED, [&] { first.run(); });
  for (const float value : second.output<float>(0)) std::cout << value << " ";
  alignas(ED_ALIGNMENT) static const float ones[192] = {};
  second.bind_input(0, ones, 192);
  second.run();
  first = std::move(second);
  std::cout << first.inputs()[0].name << " " << first.outputs()[0].shape.size() << " " << first.entries() << std::endl;
}
"""


def test_the_header_for_cxx_throws_what_went_wrong(written: Path, model: Path, package: Path, tmp_path: Path) -> None:
    (tmp_path / "checks.cc").write_text(CHECKS)
    program = compiled([tmp_path / "checks.cc"], tmp_path / "checks", written, board="local", toolchain="native")
    [line] = said([program, package])
    *values, name, rank, entries = line.split()
    assert (name, rank, entries) == ("data", "4", "1")
    [wanted] = reference(model, np.ones((1, 3, 8, 8), np.float32)).values()
    np.testing.assert_allclose(np.array(values, np.float32), wanted.ravel(), rtol=1e-4, atol=1e-5)


def test_the_wheel_needs_numpy_alone(written: Path, digits: Path, tmp_path: Path) -> None:
    [wheel] = written.glob("*.whl")
    assert wheel.stat().st_size < 1_500_000
    printed(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    for path in Path(np.__file__).parent.parent.glob("numpy*"):  # numpy, its libraries, and what pip knows of it
        (site / path.name).symlink_to(path)
    printed(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--quiet", wheel)
    assert_classifies(digits, digit_image(tmp_path), python, EXAMPLES / "python" / "detect.py")


def test_the_wheel_is_the_same_each_time(written: Path, tmp_path: Path) -> None:
    [wheel] = written.glob("*.whl")
    write_library(load_board("local"), tmp_path)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    ("board", "tag"),
    [
        ("rpi4", "manylinux_2_28_aarch64"),
        ("rpi-armhf", "manylinux_2_28_armv7l"),
        ("nuc-opencl", "manylinux_2_28_x86_64"),
        ("visionfive2", "manylinux_2_28_riscv64"),
    ],
)
def test_wheels_have_the_tag_of_the_boards_system(board: str, tag: str) -> None:
    assert platform_tag(architecture_of(load_board(board).triple).python, "2.28") == tag


def test_the_same_class_on_the_host_builds_what_it_is_asked_for(command: Command, model: Path, tmp_path: Path) -> None:
    [data] = images(1)
    for release in (str(model), model.with_suffix(".tar.gz"), model.with_suffix("")):
        with HostNetwork(release) as opened:
            assert_agree(opened(data), reference(model, data))
    with HostNetwork("digits") as opened:
        assert [spec.name for spec in opened.inputs] == ["data"]


def test_the_same_class_on_the_host_raises_typed_errors(package: Path) -> None:
    with HostNetwork(package) as opened, pytest.raises(InputError, match="unknown input 'x'"):
        opened.run({"x": 1})
    with pytest.raises(PackageError, match="is not a link to a release"):
        HostNetwork(package, follow=True)


def test_the_command_says_what_it_wrote(command: Command, tmp_path: Path) -> None:
    found = json_of(command, "library", "--output", tmp_path / "out")
    assert found["glibc"] == "2.28"
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if not path.is_dir()}
    assert set(found["files"]) == written
    assert (tmp_path / "out" / "lib" / "libedgedeploy.so").readlink() == Path("libedgedeploy.so.1")
    assert "lib/libedgedeploy.a" in output_of(command, "library", "--output", tmp_path / "out")  # once more


def test_a_folder_that_holds_something_else_is_left_as_it_is(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    put(folder / "mine.txt", "mine")
    assert "it holds something else" in refused(command, 10, "library", "--output", folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    assert "cannot write" in refused(command, 10, "library", "--output", folder / "mine.txt")


def test_a_library_that_cannot_be_built_leaves_no_folder(command: Command, tmp_path: Path) -> None:
    board = write_profile(tmp_path, "rpi4", triple="sparc64-unknown-linux-gnu")
    err = refused(command, 11, "library", "--board", board, "--output", tmp_path / "a" / "b")
    assert "no agent can be built for the architecture sparc64" in err
    assert not (tmp_path / "a").exists()


@pytest.mark.slow  # zig builds its C++ library for each first
@pytest.mark.parametrize("board", ["rpi4", "rpi-armhf"])
def test_programs_of_a_board_classify_under_emulation(board: str, digits: Path, tmp_path: Path) -> None:
    profile = load_board(board)
    command = emulation_here(profile)
    write_library(profile, tmp_path / "library")
    shared = tmp_path / "library" / "lib" / "libedgedeploy.so.1"
    assert_needs_little(shared, board, most_bytes=4_000_000)
    lines = ABI.read_text().splitlines()
    assert library_programs.exported(shared) == [line for line in lines if line.endswith("@EDGEDEPLOY_1")]
    (tmp_path / "layout.c").write_text(LAYOUT)
    folder, image, archive = unpacked_digits(board, tmp_path), digit_image(tmp_path), digits.with_suffix(".tar.gz")
    for how in ("shared", "static"):
        layout = compiled([tmp_path / "layout.c"], tmp_path / "layout", tmp_path / "library", board=board)
        assert set(said([*command, layout])) <= set(lines)
        for source, suffix in ((EXAMPLES / "c" / "detect.c", "c"), (EXAMPLES / "cpp" / "detect.cc", "cc")):
            program = compiled([source], tmp_path / suffix, tmp_path / "library", board=board, how=how)
            library_programs.assert_as_python_says(said([*command, program, image, folder]), archive, image)
