"""What tests share: all that is named by its content is made once, and kept between tests and runs of the tests."""

import os
import shutil
import time
from pathlib import Path

import platformdirs
import pytest

from edgedeploy.build_key import code_digest, folder

# The user's own, which is known before tests get folders of their own.
KEPT = platformdirs.user_cache_path()

# Kinds of `edgedeploy.base.cache`: compilers' results, in the user's cache; and edgedeploy's own, in a folder
# for each state of that code.
COMPILED = ("agents", "emulated-programs", "objects", "opencl-devices", "opencl-runtime", "plugins")
BUILT = ("packages", "quantised", "unpacked")

# Programs that keep what they make in folders of their own.
OTHERS = {
    # Its C++ library for each triple, which takes it minutes.
    "ZIG_GLOBAL_CACHE_DIR": "zig",
    "POCL_CACHE_DIR": "pocl",
}

# States of edgedeploy's code of which something is kept, some hundred megabytes each; tests elsewhere may use others.
_STATES, _IN_USE_S = 3, 3600


def share_caches(cache_home: Path, *, cold: bool = False) -> None:
    """Let a cache folder of tests find what was made before; if it is cold, only what compilers made."""
    user = cache_home / "edgedeploy"
    user.mkdir(parents=True)
    folders = {name: KEPT / "edgedeploy" / name for name in COMPILED}
    if not cold:
        folders |= {name: of_this_code() / name for name in BUILT}
    for name, kept in folders.items():
        kept.mkdir(parents=True, exist_ok=True)
        (user / name).symlink_to(kept)


def cool(cache_home: Path) -> None:
    for name in BUILT:
        path = cache_home / "edgedeploy" / name
        if path.is_symlink():
            path.unlink()


def is_patched(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a test has replaced a part of a program, so that what is built may be another than its key says."""
    patched = (getattr(each[0], "__name__", None) or type(each[0]).__module__ for each in monkeypatch._setattr)
    return any(not name.startswith(("sys", "os", "importlib")) for name in patched)


def remove_stale() -> None:
    """Remove what states of edgedeploy's code made, but for the last ones and those of the last hour."""
    states = sorted(of_this_code().parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in states[_STATES:]:
        if path.stat().st_mtime < time.time() - _IN_USE_S:
            shutil.rmtree(path, ignore_errors=True)


def of_this_code() -> Path:
    """The folder of what edgedeploy's code in its present state made for tests."""
    path = KEPT / "edgedeploy-tests" / code_digest(folder())[:16]
    path.mkdir(parents=True, exist_ok=True)
    os.utime(path)
    return path
