"""The demo of `make demo`: RetinaFace where its files can be had, else the digits that come with edgedeploy."""

from __future__ import annotations

import os
import sys

from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import DownloadError, EdgedeployError
from edgedeploy.zoo.download import Patience
from edgedeploy.zoo.entry import MODELS
from edgedeploy.zoo.store import fetch, pull

FIRST, BUNDLED = "retinaface", "digits"

# One short attempt: somebody waits, and there is something else to show.
HASTE = Patience(connect=4, read=10, attempts=1)


def obstacle(name: str) -> DownloadError | None:
    """Why the network or the picture of a demo cannot be had; what else may be wrong the demo itself reports."""
    try:
        demo = DEMOS.load(name)
        pull(MODELS.load(demo.model), folder=MODELS.find(demo.model).parent, patience=HASTE)
        fetch(demo.image, folder=DEMOS.find(name).parent, patience=HASTE)
    except DownloadError as error:
        return error
    except EdgedeployError:
        return None
    return None


def main() -> None:
    """Say which demo it is and why, and become that demo."""
    found = obstacle(FIRST)
    if found:
        print(f"{FIRST} cannot be shown: {str(found).splitlines()[0]}")
        print(f"This is the demo {BUNDLED} instead, whose network and picture come with edgedeploy.\n", flush=True)
    else:
        print(f"This is the demo {FIRST}: its network and its picture are at hand.\n", flush=True)
    name = BUNDLED if found else FIRST
    os.execv(sys.executable, [sys.executable, "-m", "edgedeploy", "demo", name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
