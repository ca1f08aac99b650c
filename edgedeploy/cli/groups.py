"""Groups of commands: with sections in their help, or with models instead of a command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

# The command that takes models.
USUAL = "models"


class ModelsOrCommand(TyperGroup):
    """A group whose first argument may be a model or one of its options, instead of a command."""

    usual = USUAL

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command for models before any other first word."""
        if args and args[0] not in self.commands:
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


class InSections(TyperGroup):
    """A group whose help lists commands by their `rich_help_panel`, without rich, and options after them."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands first."""
        begin = len(formatter.buffer)
        super().format_options(ctx, formatter)
        buffer = formatter.buffer
        buffer[begin:] = buffer[self._commands_at :] + buffer[begin : self._commands_at]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each panel, in the order of their first commands."""
        self._commands_at = len(formatter.buffer)
        sections: dict[str, dict[str, Any]] = {}
        command: Any
        for name, command in self.commands.items():
            sections.setdefault(command.rich_help_panel, {})[name] = command
        width = formatter.width - 6 - max(map(len, self.commands))
        for title, commands in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, each.get_short_help_str(width)) for name, each in commands.items()])
