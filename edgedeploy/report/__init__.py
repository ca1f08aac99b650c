"""Pages about measurements, one HTML file each: `charts.py` draws, `page.py` fills templates; extra `report`."""

from __future__ import annotations

from importlib.util import find_spec

from edgedeploy.errors import UnsupportedError


def require_report() -> None:
    """Check that pages can be written. Call it before the work."""
    if find_spec("matplotlib") is None:
        raise UnsupportedError("pages need Matplotlib, not installed here", hints=["pip install 'edgedeploy[report]'"])
