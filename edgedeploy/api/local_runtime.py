"""The class of the boards' Python package on this machine, which builds networks on demand."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.agent import edgedeploy_runtime
from edgedeploy.base.files import is_file
from edgedeploy.errors import EdgedeployError, InputError, PackageError
from edgedeploy.package.archive import SUFFIX
from edgedeploy.package.manifest import MANIFEST_NAME
from edgedeploy.remote.failures import DEVICE, failure
from edgedeploy.runtime.served import unpacked

# The library's error codes.
_ERRORS: dict[int, type[EdgedeployError]] = {2: InputError, 7: InputError, 8: PackageError}


class Network(edgedeploy_runtime.Network):
    """As `edgedeploy_runtime.Network`, for a folder, a package, a name in the zoo, or a network's file.

    A network that is not a package yet is built for this machine, as `edgedeploy run` does it.
    """

    @staticmethod
    def _library_path() -> Path:
        from edgedeploy.agent.library import shared_library
        from edgedeploy.target.board import load_board

        return shared_library(load_board("local"))

    @staticmethod
    def _place(release: str | Path, *, follow: bool) -> str:
        if follow:  # a release in use here, as on a board
            return edgedeploy_runtime.Network._place(release, follow=True)
        if is_file(Path(release) / MANIFEST_NAME):
            return str(Path(release).absolute())
        if str(release).endswith(SUFFIX):
            return str(unpacked(Path(release)))
        from edgedeploy.building import prepare
        from edgedeploy.target.resolved import resolve

        return str(unpacked(prepare(str(release), resolve("local")).package_path))

    @staticmethod
    def _error(code: int, text: str) -> Exception:
        what = "the network cannot be used"
        return failure(code, what, text) if code == DEVICE else _ERRORS.get(code, EdgedeployError)(what, why=text)
