"""Running the converters that some engines bring for networks of other formats."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edgedeploy.benchmarking.engines.engine import CannotRunError
from edgedeploy.errors import signal_of

_PATIENCE_S = 300.0


def convert(command: list[str], folder: Path, results: tuple[Path, ...]) -> None:
    """Run a converter in `folder`."""
    name = Path(command[0]).name if "-c" not in command else "the converter"
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRunError(f"{name} failed: {error}") from error
    missing = [path.name for path in results if not path.is_file()]
    if crash := signal_of(done.returncode):
        raise CannotRunError(f"{name} crashed ({crash})")
    if done.returncode or missing:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        why = lines[-1] if lines else f"it wrote no {', '.join(missing)}"
        raise CannotRunError(f"{name} ended with code {done.returncode}: {why}")
