"""What an installation without the extra `build` lacks: what makes packages, and nothing that pushes or runs them."""

from __future__ import annotations

import importlib.util

from edgedeploy.errors import NotInstalledError

# Modules of the extra's packages, by the names that these are installed by.
_BUILD = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "onnx": "onnx", "onnxruntime": "onnxruntime"}
INSTALL_BUILD = "pip install 'edgedeploy[build]'"


def is_installed(module: str) -> bool:
    """Whether there is a module of this name; it is not imported."""
    return importlib.util.find_spec(module) is not None


def require_build(what: str) -> None:
    """Refuse work that needs the extra `build` where that is not installed.

    Args:
        what: what cannot be done, as a sentence.
    """
    for module, package in _BUILD.items():
        if not is_installed(module):
            raise _missing(what, package)


def missing_module(error: ModuleNotFoundError) -> NotInstalledError | None:
    """The error for a module that was not found, if it is one of the extra's."""
    package = _BUILD.get((error.name or "").partition(".")[0])
    return _missing("this is not possible with what is installed", package) if package else None


def _missing(what: str, package: str) -> NotInstalledError:
    why = f"the Python package {package} is needed for it, and not installed"
    return NotInstalledError(what, why=why, hints=[INSTALL_BUILD])
