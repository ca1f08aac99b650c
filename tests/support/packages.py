"""Packages that are sound but for one thing."""

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.archive import describe, manifest_bytes
from edgedeploy.package.entry import Case, SelfTest
from edgedeploy.package.manifest import Abi, Check, Manifest, Memory
from support.archives import add

CONTENTS = {"model.so": b"code" * 1000, "selftest/input-0.bin": b"\0" * 16, "selftest/output-0.bin": b"\1" * 8}


def manifest(contents: dict[str, bytes] = CONTENTS) -> Manifest:
    tolerances = {"usual": 1e-4, "relative": [1e-4], "absolute": 1e-6, "spread": [None]}
    case = Case(name="random", inputs=["selftest/input-0.bin"], outputs=["selftest/output-0.bin"], **tolerances)
    return Manifest(
        model="net",
        model_sha256="0" * 64,
        board="local",
        build_key="1" * 64,
        target={"kind": "llvm"},
        threads=2,
        versions={"edgedeploy": "0"},
        linker="native",
        inputs=[TensorSpec(name="x", shape=[4], dtype="float32")],
        outputs=[TensorSpec(name="x", shape=[2], dtype="float32")],
        abi=Abi(elf_class=64, machine="EM_X86_64", float_abi=None, glibc="2.28", libraries=[], cpu="x", features=[]),
        memory=Memory(workspace_bytes=64, scratch_bytes=0, constants_bytes=8),
        selftest=SelfTest(cases=[case], reference="nobody"),
        checked=Check(how="no"),
        files=describe(contents),
    )


def document() -> dict[str, Any]:
    return json.loads(manifest_bytes(manifest()))  # type: ignore[no-any-return]


def changed(field: str, value: object) -> bytes:
    """A manifest's text in which a field has another value, be it one that none can have."""
    return json.dumps({**document(), field: value}).encode()


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            add(archive, name, content)
    return path


def spec(name: str = "x", shape: Sequence[int] = (4,), dtype: str = "float32", **others: object) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": dtype, **others}


def of_steps(scale: float, zero_point: int = 0) -> dict[str, Any]:
    return spec(shape=[16], dtype="int8", steps={"scale": scale, "zero_point": zero_point})


def selftest(**fields: object) -> dict[str, Any]:
    test = document()["selftest"]
    return {**test, "cases": [{**test["cases"][0], **fields}]}


def files_with(*names: str) -> dict[str, Any]:
    return {**document()["files"], **{name: {"size": 1, "sha256": "0" * 64} for name in names}}


MANY_FILES = files_with(*(f"x{number}" for number in range(2000)))


# Manifests that no package can have: the field, its value, and a part of what is said of it.
UNSOUND: dict[str, tuple[str, Any, str]] = {
    "a model whose name is a path": ("model", "../../../x", "model: must match"),
    "a model whose name is absolute": ("model", "/etc/x", "model: must match"),
    "a model without a name": ("model", "", "model: must match"),
    "a model whose name has two lines": ("model", "net\n", "model: must match"),
    "a model whose name is an option": ("model", "-rf", "model: must match"),
    "a model whose name is a hidden file's": ("model", ".net", "model: must match"),
    "a model whose name is too long": ("model", "x" * 101, "model: must match"),
    "no file": ("files", {}, "files does not list"),
    "more files than a command names": ("files", MANY_FILES, "lists 2,003 files, more than fit into one command"),
    "a tensor of no dtype": ("inputs", [spec(dtype="no dtype")], "inputs.0.dtype"),
    "a tensor of Python's objects": ("inputs", [spec(dtype="object")], "'x' is of object"),
    "a tensor of texts": ("inputs", [spec(dtype="S16")], "'x' is of S16"),
    "a tensor of another order of bytes": ("inputs", [spec(dtype=">f4")], "'x' is of >f4"),
    "a shape below zero": ("inputs", [spec(shape=[-4])], "the shape of 'x' is [-4]"),
    "a tensor beyond all memory": ("inputs", [spec(shape=[1 << 20, 1 << 20])], "'x' is larger than 1,073,741,824"),
    "a dimension beyond all memory": ("inputs", [spec(shape=[0, 1 << 40])], "the shape of 'x' is [0, 1099511627776]"),
    "a tensor of many dimensions": ("inputs", [spec(shape=[9] * 100_000)], "'x' has 100000 dimensions, more than 32"),
    "steps of floats": ("inputs", [spec(steps={"scale": 1, "zero_point": 0})], "not of float32"),
    "a zero point beyond its type": ("inputs", [of_steps(1, 10**300)], "its zero point is not a valid int8"),
    "a scale that float32 rounds to zero": ("inputs", [of_steps(1e-300)], "inputs.0.steps.scale"),
    "a scale beyond float32": ("inputs", [of_steps(1e300)], "inputs.0.steps.scale"),
    "a version of too many digits": ("abi", {**document()["abi"], "glibc": "2." + "9" * 5000}, "abi.glibc"),
    "an input without a test": ("inputs", [spec(), spec("y")], "another number of tensors"),
    "an output without a test": ("outputs", [], "the self-test has another number of"),
    "an input of another size than its test's": ("inputs", [spec(shape=[5])], "input-0.bin is not of the size of 'x'"),
    "an output of another type": ("outputs", [spec(dtype="int8", shape=[1])], "output-0.bin is not of the size of 'x'"),
    "no thread": ("threads", 0, "threads: must be above 0"),
    "more threads than there are": ("threads", 1 << 20, "threads: must be at most"),
    "a tolerance that is no number": ("selftest", selftest(relative=[float("nan")]), "NaN is not a number"),
    "a tolerance without end": ("selftest", selftest(relative=[float("inf")]), "Infinity is not a number"),
    "a tolerance below zero": ("selftest", selftest(relative=[-1e-3]), "selftest.cases.0.relative.0"),
    "an absolute tolerance that is no number": ("selftest", selftest(absolute=float("nan")), "NaN is not a number"),
    "an absolute tolerance below zero": ("selftest", selftest(absolute=-1e-9), "selftest.cases.0.absolute"),
    "a test of files that are not there": ("selftest", selftest(inputs=["missing.bin"]), "files does not list"),
    "an output without a tolerance": ("selftest", selftest(relative=[]), "another number of tolerances"),
    "an output with two tolerances": ("selftest", selftest(relative=[0.1, 0.1]), "another number of tolerances"),
    "a test without a case": ("selftest", {"cases": [], "reference": "nobody"}, "selftest.cases: must have"),
    "two cases of one name": ("selftest", {**selftest(), "cases": selftest()["cases"] * 2}, "two cases have one name"),
    "weights that are not there": ("transformed", [spec("weights/0.bin")], "files does not list weights/0.bin"),
    "weights of another size": ("transformed", [spec("model.so")], "model.so is not of the size of 'model.so'"),
    "weights beyond memory": ("transformed", [spec("model.so", [1 << 20, 1 << 20])], "is larger than 1,073,741,824"),
    "weights of a size below zero": ("transformed", [spec("model.so", [-1000])], "the shape of 'model.so' is [-1000]"),
    "weights of no dtype": ("transformed", [spec("model.so", [4000], "object")], "'model.so' is of object"),
    "weights outside of the package": ("transformed", [spec("../model.so", [1000])], "files does not list ../model.so"),
    "threads in a text": ("threads", "2", "threads: must be a whole number"),
    "a truth value of threads": ("threads", True, "threads: must be a whole number"),
    "threads as a float": ("threads", 1.0, "threads: must be a whole number"),
    "a format as a float": ("format", 1.0, "format: must be a whole number"),
    "weights of another kind": ("weights", "x", "weights: must be 'file' or 'random'"),
    "a device by another name": ("device", "x", "device: there is no such field"),
    "an unknown field": ("x", 1, "x: there is no such field"),
    "an unknown field of a tensor": ("inputs", [spec(x=1)], "inputs.0.x: there is no such field"),
    "an unknown field of a case": ("selftest", selftest(x=1), "selftest.cases.0.x: there is no such field"),
    "an unknown field of the test": ("selftest", {**selftest(), "x": 1}, "selftest.x: there is no such field"),
    "an unknown field of the library": ("abi", {**document()["abi"], "x": 1}, "abi.x: there is no such field"),
    "another format": ("format", 2, "format: another version of edgedeploy wrote it: this one reads format 1, not 2"),
    "a target of numbers that are none": ("target", {"a": float("-inf")}, "-Infinity is not a number"),
    "a target of deep lists": ("target", {"a": [[[[[1]]]]]}, "nested too deeply"),
}


def full_document() -> dict[str, Any]:
    """A manifest as JSON that has what others leave out."""
    entry = {field: document()[field] for field in ("inputs", "outputs", "selftest")}
    quantised = {**of_steps(0.5, 3), "below": None}
    usage = {
        "demo": "yolo",
        "stage": 1,
        "input": {
            **{"name": "x", "shape": [1, 3, 8, 8], "kind": "image", "layout": "NCHW", "colour": "RGB"},
            **{"mean": [1.0, 2.0, 3.0], "scale": [0.5, 0.5, 0.5]},
        },
        "fit": {"kind": "letterbox"},
        "decoder": {"kind": "yolo"},
        "log": "yolo",
        "outputs": ["x"],
        "labels": ["face"],
        "camera": {"width": 640, "height": 480, "pixels": "yuv420"},
    }
    return {
        **document(),
        "inputs": [quantised],
        "further": [{**entry, "function": "main_1"}],
        "heads": [{"output": "x", "kind": "yolo", "anchors": [[1.5, 2.5]], "classes": 2, "scale_x_y": 1.5}],
        "metadata": {"names": "x"},
        "usage": usage,
        "opencl_device": None,
    }


FILE_NAMES = {
    "agent": "no file 'agent'",
    "agent/x": "no file 'agent/x'",
    "manifest.json": "no file 'manifest.json'",
    "manifest.json/x": "no file 'manifest.json/x'",
    "model.so/x": "no file 'model.so/x'",
    "selftest": "no file 'selftest/input-0.bin'",
    "../escape": "files.../escape",
    "/etc/passwd": "files./etc/passwd",
    "a/b/c": "files.a/b/c",
    "a/..": "files.a/..",
    "Agent": "files.Agent",
    "a\nb": "files.a",
    "x" * 101: "at most 100 characters",
}
