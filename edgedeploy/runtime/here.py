"""The class of the boards' Python package on this machine, where networks are built when they are asked for."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.errors import EdgedeployError, InputError, PackageError
from edgedeploy.files import is_file, sha256_of
from edgedeploy.kept import Kept
from edgedeploy.package.archive import SUFFIX, manifest_bytes, read_package
from edgedeploy.package.manifest import MANIFEST_NAME
from edgedeploy.remote.failures import DEVICE, failure
from edgedeploy.runtime import library

# Packages that were unpacked, as the library takes them.
_UNPACKED = Kept("unpacked")

# What the library's codes are here.
_ERRORS: dict[int, type[EdgedeployError]] = {2: InputError, 7: InputError, 8: PackageError}


class Network(library.Network):
    """As `library.Network`, for a folder, a package, a name of the zoo, or a network's file.

    What is no package yet is built for this machine, as `edgedeploy run` does it.

    Raises:
        EdgedeployError: any of the errors of building it and of opening it.
    """

    @staticmethod
    def _library_path() -> Path:
        from edgedeploy.agent.library import shared_library
        from edgedeploy.board import load_board

        return shared_library(load_board("local"))

    @staticmethod
    def _place(release: str | Path, *, follow: bool) -> str:
        if follow:  # a release in use here, as on a board
            return library.Network._place(release, follow=True)
        if is_file(Path(release) / MANIFEST_NAME):
            return str(Path(release).absolute())
        return str(unpacked(Path(release) if str(release).endswith(SUFFIX) else _built(str(release))))

    @staticmethod
    def _error(code: int, text: str) -> Exception:
        what = "the network cannot be used"
        return failure(code, what, text) if code == DEVICE else _ERRORS.get(code, EdgedeployError)(what, why=text)


def _built(model: str) -> Path:
    """A package of a model for this machine."""
    from edgedeploy.building import prepare
    from edgedeploy.resolved import resolve

    return prepare(model, resolve("local")).package_path


def unpacked(package: Path) -> Path:
    """The folder of a package, which is checked when it is read."""
    manifest, contents = read_package(package)

    def unpack(folder: Path) -> None:
        for name, content in {**contents, MANIFEST_NAME: manifest_bytes(manifest)}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)

    return _UNPACKED.made(sha256_of(package)[:16], unpack, f"unpacking {package.name}")
