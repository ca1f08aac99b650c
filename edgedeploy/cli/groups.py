"""Groups of commands: with records of options and `--json`, with sections in their help, or with models as commands."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar

from typer import Context, Option, Typer
from typer.core import TyperGroup

# The command that takes models.
USUAL = "models"

_Function = TypeVar("_Function", bound=Callable[..., Any])
_JSON = "Print one JSON value for scripts."


class Commands(Typer):
    """Commands that take `--json`, a global option, and whose parameters may be records of options."""

    def command(
        self, name: str | None = None, *, json: str | None = _JSON, **options: Any
    ) -> Callable[[_Function], _Function]:
        """Declare a command; `json` is the help of `--json`, None for a command without."""
        declare = super().command(name, **options)

        def declared(function: _Function) -> _Function:
            declare(_flattened(function, json))
            return function

        return declared

    def listing(self, function: _Function) -> _Function:
        """Declare what the group does if no command of it is named."""

        def unless_named(context: Context) -> None:
            if context.invoked_subcommand is None:
                function()

        unless_named.__doc__ = function.__doc__
        self.callback(invoke_without_command=True)(_flattened(unless_named, _JSON))
        return function


def _flattened(command: Callable[..., Any], json: str | None) -> Callable[..., None]:
    """A command with `--json`, and with options that it receives as records: the fields of dataclasses."""
    own = _parameters(command)
    records = {
        name: each.annotation
        for name, each in own.items()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }
    options = {name: _parameters(record) for name, record in records.items()}

    @functools.wraps(command)
    def with_records(*, as_json: bool = False, **arguments: Any) -> None:  # main has set the global option
        made = {
            name: record(**{option: arguments.pop(option) for option in options[name]})
            for name, record in records.items()
        }
        command(**arguments, **made)

    parameters: list[inspect.Parameter] = []
    for name, parameter in own.items():
        parameters += options[name].values() if name in options else [parameter]
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    if json:
        option = Annotated[bool, Option("--json", help=json)]
        keywords.append(inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option))
    with_records.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    with_records.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return with_records


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """A function's parameters, with annotations that are no longer text: typer would look them up elsewhere.

    Not by `typing.get_type_hints`: Python 3.10's makes all with the default None optional, around what typer looks for.
    """
    return dict(inspect.signature(function, eval_str=True).parameters)


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
