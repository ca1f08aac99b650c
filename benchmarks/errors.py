"""How the scripts of this folder end where something is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from edgedeploy.cli.console import print_error
from edgedeploy.errors import EdgedeployError


@contextmanager
def ending_with_errors() -> Iterator[None]:
    """What a script does: errors end it as they end `edgedeploy`."""
    try:
        yield
    except EdgedeployError as error:
        print_error(error)
        sys.exit(error.exit_code)
