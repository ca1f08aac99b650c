"""Groups of commands whose first argument may be a model."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

# The command that takes models.
USUAL = "models"


class ModelsOrCommand(TyperGroup):
    """A group whose first argument may be a model: what is none of its commands is one, or an option about models."""

    usual = USUAL

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command for models before what is none."""
        if args and args[0] not in self.commands:
            args = [self.usual, *args]
        return super().parse_args(ctx, args)
