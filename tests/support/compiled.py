"""Machine code that tests share: object files by what LLVM made them from, for each state of the code that compiles."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tvm

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.files import replacing
from edgedeploy.compile.backends.cpu import codegen
from support.caches import is_patched, of_this_code

_OBJECT = "code.o"
_write = codegen.write_object


class _KeptObjects(FolderCache):
    """As what users keep, but in the tests' own folder, whatever cache a test has."""

    @property
    def folder(self) -> Path:
        return of_this_code() / self.kind


_CODE = _KeptObjects("code")


class _Library:
    """Stands for the LLVM module of an object file, and compiles it again for what is not kept."""

    def __init__(self, folder: Path, make: Callable[[Path], Any]) -> None:
        self._folder, self._make = folder, make

    def inspect_source(self, kind: str = "") -> str:
        path = self._folder / f"code.{kind}"
        if not path.is_file():
            with replacing(path) as temporary:
                temporary.write_text(self._made().inspect_source(kind))
        return path.read_text()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)

    def _made(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return self._make(Path(folder) / _OBJECT)


def _write_once(functions: tvm.IRModule, target: tvm.target.Target, path: Path) -> Any:
    """`codegen.write_object`, but for code that a test has made before."""

    def make(object_file: Path) -> Any:
        return _write(functions, target, object_file)

    def fill(folder: Path) -> None:
        (folder / "code.ll").write_text(make(folder / _OBJECT).inspect_source("ll"))

    made_from = hashlib.sha256(tvm.ir.save_json(functions).encode()).hexdigest()
    described = json.dumps(target.export(), sort_keys=True, default=str)
    folder = _CODE.get(key_of([made_from, described, tvm.__version__]), fill, "code")
    shutil.copyfile(folder / _OBJECT, path)
    return _Library(folder, make)


@pytest.fixture(scope="session", autouse=True)
def _shared_code(pytestconfig: pytest.Config) -> Iterator[list[pytest.Function]]:
    """Code of networks is generated once; gives what holds the test that runs."""
    running: list[pytest.Function] = []

    def write(functions: tvm.IRModule, target: tvm.target.Target, path: Path) -> Any:
        return (_write if any(map(_has_own_code, running)) else _write_once)(functions, target, path)

    with pytest.MonkeyPatch.context() as patch:
        if "not compiles" not in pytestconfig.getoption("markexpr"):
            patch.setattr(codegen, "write_object", write)
        yield running


def _has_own_code(test: pytest.Function) -> bool:
    patch = test.funcargs.get("monkeypatch")
    return test.get_closest_marker("cold_cache") is not None or (patch is not None and is_patched(patch))


@pytest.fixture(autouse=True)
def _running(request: pytest.FixtureRequest, _shared_code: list[pytest.Function]) -> Iterator[None]:
    _shared_code.append(request.node)
    yield
    _shared_code.clear()
