"""A console that prints text as text: nothing that a board, a package or a network contains moves the cursor.

All output of the commands with rich passes through here: strings, tables and bars.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from edgedeploy.base.text import printable
from edgedeploy.cli.global_options import global_options


class Terminal(Console):
    """A console on which a string, also one in a table, is one line of text: no markup, no emoji codes, no escapes.

    Several lines are several strings, or a `Text` from `console.foreign`.
    """

    def __init__(self, **options: Any) -> None:
        colours: dict[str, Any] = {"always": {"color_system": "standard"}, "never": {"color_system": None}}
        chosen = colours.get(global_options().colour, {})
        super().__init__(**options, **chosen, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """As in rich, which calls this for each string to print."""
        return super().render_str(printable(text), **{**options, "markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As in rich, which calls this for everything to print; only its own codes stay unchanged."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == "\n" or segment.text.isprintable():
                yield segment
            else:
                yield Segment("\n".join(map(printable, segment.text.split("\n"))), segment.style)
