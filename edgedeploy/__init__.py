"""edgedeploy: from a trained neural network to a small board.

What a command does, one call does; docs/api.md has all of them:

    import edgedeploy as ed

    network = ed.open("retinaface")
    for face in network.detect("party.jpg"):
        print(face.box, face.score)

Names are imported when they are first asked for: importing edgedeploy itself takes milliseconds.
"""

from __future__ import annotations

import os
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from edgedeploy.version import __version__ as __version__

if TYPE_CHECKING:
    from edgedeploy.api.boards import Board as Board
    from edgedeploy.api.boards import connect as connect
    from edgedeploy.api.measuring import bench as bench
    from edgedeploy.api.networks import Detections as Detections
    from edgedeploy.api.networks import Network as Network
    from edgedeploy.api.networks import open_network as open  # noqa: F401
    from edgedeploy.api.packages import Package as Package
    from edgedeploy.api.packages import build as build
    from edgedeploy.api.predicting import predict as predict
    from edgedeploy.api.quantising import quantize as quantize
    from edgedeploy.api.tuning import tune as tune
    from edgedeploy.base.progress import Progress as Progress
    from edgedeploy.errors import EdgedeployError as EdgedeployError
    from edgedeploy.frontends.format import ImportOptions as ImportOptions

# onnxruntime 1.31 writes an id of this device and looks for its maker's server as soon as it is imported; a call
# afterwards comes too late. Processes that are started from here inherit the variable.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# Where the names of the Python API are defined.
_PUBLIC = {
    "Board": "edgedeploy.api.boards:Board",
    "Detections": "edgedeploy.api.networks:Detections",
    "EdgedeployError": "edgedeploy.errors:EdgedeployError",
    "ImportOptions": "edgedeploy.frontends.format:ImportOptions",
    "Network": "edgedeploy.api.networks:Network",
    "Package": "edgedeploy.api.packages:Package",
    "Progress": "edgedeploy.base.progress:Progress",
    "bench": "edgedeploy.api.measuring:bench",
    "build": "edgedeploy.api.packages:build",
    "connect": "edgedeploy.api.boards:connect",
    "open": "edgedeploy.api.networks:open_network",
    "predict": "edgedeploy.api.predicting:predict",
    "quantize": "edgedeploy.api.quantising:quantize",
    "tune": "edgedeploy.api.tuning:tune",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    """Import a name of the API at its first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = resolve_name(_PUBLIC[name])
    except ModuleNotFoundError as error:
        from edgedeploy.base.extras import missing_module

        raise missing_module(error) or error from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
