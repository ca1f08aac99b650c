"""Profiles of boards that tests write."""

from __future__ import annotations

from pathlib import Path

import yaml

from edgedeploy.catalog import builtin_folder


def write_profile(folder: Path, base: str, **fields: object) -> str:
    """A profile, `mine`, that differs from another in some fields; None takes one away. Gives its path."""
    stated = yaml.safe_load((builtin_folder() / "boards" / f"{base}.yaml").read_text()) | fields
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in stated.items() if value is not None}))
    return str(path)
