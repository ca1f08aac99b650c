"""Builds the agents that a wheel carries: scripts/ship_agents.py FOLDER [BOARD...]; of all profiles by default."""

from __future__ import annotations

import sys
from pathlib import Path

from edgedeploy.agent import shipped
from edgedeploy.agent.build import agents_to_ship
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.target.board import BOARDS, load_board


def main(folder: str, *names: str) -> None:
    """Build what is not there yet, and put all into a folder."""
    boards = [load_board(name) for name in names or BOARDS.names()]
    shipped.write(Path(folder), agents_to_ship(boards, ConsoleProgress()))


if __name__ == "__main__":
    main(*sys.argv[1:])
