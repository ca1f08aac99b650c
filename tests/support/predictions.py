"""What tests of predictions need."""

import shutil

import pytest
from mca import PROGRAM

from edgedeploy.errors import UnsupportedError
from edgedeploy.predicting.tools import Means
from edgedeploy.target.board import load_board
from support.agents import command_of

needs_mca = pytest.mark.skipif(shutil.which(PROGRAM) is None, reason=f"{PROGRAM} is not installed: apt install llvm-19")


def require_predictions(board: str) -> str:
    """The board's name, its agent built; skips the test where nothing can be predicted for it."""
    try:
        Means.of(board, load_board(board))
    except UnsupportedError as error:
        pytest.skip(str(error))
    command_of(board)
    return board
