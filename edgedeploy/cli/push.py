"""`edgedeploy push`: packages onto boards."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.options import (
    Health,
    JsonOption,
    LastBoardOption,
    WhereAll,
    board_or_last,
    complete_model,
)
from edgedeploy.cli.overrides import overridable

if TYPE_CHECKING:
    from edgedeploy.board import Overrides
    from edgedeploy.errors import EdgedeployError
    from edgedeploy.release.push import Pushed
    from edgedeploy.remote.address import Address
    from edgedeploy.resolved import ResolvedBoard


@overridable
def push(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Packages, names of the zoo, or networks' files; the packages in dist/BOARD by default.",
            autocompletion=complete_model,
        ),
    ] = None,
    board: LastBoardOption = None,
    *,
    where: WhereAll,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Dry run: report what would be sent, and send nothing.")
    ] = False,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many releases of a model to keep on the board.")] = 3,
    health: Health,
    min_accuracy: Annotated[
        float | None,
        typer.Option(
            "--min-accuracy",
            metavar="X",
            min=0.0,
            max=1.0,
            help="Refuse packages whose recorded accuracy, or agreement with the float network, is below X, such as "
            "0.9, or that record none.",
        ),
    ] = None,
    overrides: Overrides,
    json_output: JsonOption = False,
) -> None:
    """Put packages on boards as releases, and switch to them there.

    What the board already has is not sent again. A release is switched to when it has passed its self-test on the
    board; until then, and if anything goes wrong, the one in use stays. After the switch it is tested once more, and by
    the health check if there is one; if it fails, the board goes back to what was in use before.

    Quantised networks that lost more accuracy than the board's profile allows (`max_accuracy_loss`), and all networks
    that do not record what --min-accuracy asks for, are refused before anything is sent (docs/quantisation.md).

    Several boards are served at the same time. A board or a network that fails does not stop the others.

    Examples: edgedeploy push digits --board rpi4; edgedeploy push --board rpi4 --host pi@10.0.0.7 --host pi@10.0.0.8

    Example: edgedeploy push dist/rpi4/mobilenet_v1-int8.tar.gz --board rpi4 --min-accuracy 0.9

    Example: edgedeploy push digits --board rpi4 --health-check 'systemctl --user restart reader && curl -fs localhost'
    """
    from edgedeploy.api.boards import release_of
    from edgedeploy.api.packages import check_named
    from edgedeploy.attempts import attempted
    from edgedeploy.cli.console import conclude, foreign, print_json, print_table, quiet_if, stdout
    from edgedeploy.errors import EdgedeployError, InputError
    from edgedeploy.release.gate import AccuracyRule
    from edgedeploy.release.layout import Release
    from edgedeploy.release.push import push_all

    if overrides and (not models or any(name.endswith(".tar.gz") for name in models)):
        raise InputError("--toolchain and the options after it do not go with packages", why="they are built already")
    progress = quiet_if(json_output)
    resolved = board_or_last(board, progress, overrides)
    rule = AccuracyRule(min_accuracy, resolved.profile.max_accuracy_loss)
    options = {"dry_run": dry_run, "keep": keep, "health": health.of(resolved), "accuracy": rule}
    names = models or _built_packages(resolved)
    alone = len(names) == 1
    checked = {name: attempted(partial(check_named, name), alone=alone) for name in names}
    wrong = {name: error for name, error in checked.items() if error}

    def releases() -> dict[str, Release | EdgedeployError]:
        return {
            name: wrong[name]
            if name in wrong
            else attempted(partial(release_of, name, resolved, progress), alone=alone)
            for name in names
        }

    if len(wrong) == len(names):  # before a board is reached or started
        if json_output:
            print_json([{"host": None, "model": name, **error.to_dict()} for name, error in wrong.items()])
        conclude(wrong.items())
    targets = where.addresses(resolved, progress)
    results = push_all(targets, releases, options, strict=where.strict_host_key, progress=progress)
    if len(results) == 1 and isinstance(results[0][2], EdgedeployError):
        raise results[0][2]
    if json_output:
        print_json([_as_dict(*result) for result in results])
    else:
        titles = ["board", "model", "release", "result", "sent, bytes", "time, s"]
        print_table(titles, (_row(*result) for result in results), right=titles[-2:])
        for address, model, outcome in results:
            if not isinstance(outcome, EdgedeployError) and outcome.health:
                said = outcome.health.expandtabs().splitlines()
                stdout().print(foreign(f"the health check of {model} on {address} says:", *said))
        pushed = [outcome for *_, outcome in results if not isinstance(outcome, EdgedeployError)]
        for model, outputs in {each.model: each.compiled_up_to for each in pushed if each.compiled_up_to}.items():
            stdout().print(
                foreign(
                    f"note: on the board {model} ends with {', '.join(outputs)}",
                    "what follows depends on data: edgedeploy's Python computes it where `run` and `demo` are called, "
                    "see docs/tails.md",
                )
            )
    # A board that was not reached is one failure, however many models there are.
    told = {id(outcome): (address, model) for address, model, outcome in reversed(results)}
    conclude(
        (f"{model} on {address}" if model else str(address), outcome)
        for address, model, outcome in results
        if told[id(outcome)] == (address, model)
    )


def _built_packages(board: ResolvedBoard) -> list[str]:
    """The packages that lie in the board's folder."""
    from edgedeploy.building import default_output
    from edgedeploy.errors import InputError

    folder = default_output("any", board).parent
    packages = sorted(map(str, folder.glob("*.tar.gz")))
    if not packages:
        hints = [f"edgedeploy build --board {board.name}", "name a model"]
        raise InputError(f"there are no packages in {folder}", hints=hints)
    return packages


def _row(address: Address, model: str | None, outcome: Pushed | EdgedeployError) -> list[str]:
    """A line of the table, of at most 100 columns: why something failed stands below it, files are told by --json."""
    from edgedeploy.errors import EdgedeployError

    if isinstance(outcome, EdgedeployError):
        return [str(address), model or "", "", outcome.state, "", ""]
    count = len(outcome.uploaded)
    files = f", {count} file{'s' if count > 1 else ''}" if count else ""
    sent = sum(outcome.uploaded.values()) if outcome.id is None else outcome.sent
    result, seconds = outcome.state + files, f"{outcome.seconds:.1f}"
    return [str(address), outcome.model, outcome.id or "", result, f"{sent:,}", seconds]


def _as_dict(address: Address, model: str | None, outcome: Pushed | EdgedeployError) -> dict[str, Any]:
    return {"host": str(address), "model": model, **outcome.to_dict()}
