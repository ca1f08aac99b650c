"""Fixtures that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of development material, of which nothing is part of the product."""
    folder = Path(os.environ.get("EDGEDEPLOY_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}; set EDGEDEPLOY_SHARED to where the development material lies")
    return folder
