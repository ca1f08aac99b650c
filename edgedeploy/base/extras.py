"""Installed packages, and the optional extra `build`, without which edgedeploy can only push and run packages."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable
from contextlib import suppress

from edgedeploy.errors import NotInstalledError

# Modules of the extra's packages, by the names that these are installed by.
_BUILD = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "onnx": "onnx", "onnxruntime": "onnxruntime"}
INSTALL_BUILD = "pip install 'edgedeploy[build]'"


def is_installed(module: str) -> bool:
    """Whether a module exists, without importing it."""
    return importlib.util.find_spec(module) is not None


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of packages, without those that are not installed."""
    found = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def require_build(what: str) -> None:
    """Raise NotInstalledError, with the sentence `what`, unless the extra `build` is installed."""
    for module, package in _BUILD.items():
        if not is_installed(module):
            raise missing_package(what, package)


def missing_module(error: ModuleNotFoundError) -> NotInstalledError | None:
    """The error for a missing module, if it belongs to the extra."""
    package = _BUILD.get((error.name or "").partition(".")[0])
    return missing_package("this is not possible with what is installed", package) if package else None


def missing_package(what: str, package: str, extra: str = "build") -> NotInstalledError:
    """The error that `what` needs a package of an extra."""
    why = f"the Python package {package} is needed for it, and not installed"
    return NotInstalledError(what, why=why, hints=[f"pip install 'edgedeploy[{extra}]'"])
