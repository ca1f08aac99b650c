"""Pages about measurements, as one HTML file each: `charts.py` draws, `page.py` lays out. Needs the extra `report`."""

from __future__ import annotations

from importlib.util import find_spec

from edgedeploy.errors import UnsupportedError


def require_report() -> None:
    """Check that pages can be made. Call it before the work that a page is about."""
    if find_spec("matplotlib") is None:
        raise UnsupportedError("pages need Matplotlib, not installed here", hints=["pip install 'edgedeploy[report]'"])
