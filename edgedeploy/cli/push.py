"""`edgedeploy push`: packages onto boards."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from typer import Argument, Option

from edgedeploy.base.attempts import attempted
from edgedeploy.base.text import count
from edgedeploy.cli.console import as_table, conclude, print_result, print_text, shown_progress
from edgedeploy.cli.options import BoardOrLast, Health, WhereAll, complete_model
from edgedeploy.cli.overrides import Overriding
from edgedeploy.errors import EdgedeployError, InputError

if TYPE_CHECKING:
    from edgedeploy.release.push import Pushed
    from edgedeploy.remote.address import Address
    from edgedeploy.target.resolved import ResolvedBoard


def push(
    models: list[str] | None = Argument(
        None,
        metavar="MODEL",
        help="Packages, zoo names, or networks' files; default: the packages in dist/BOARD.",
        autocompletion=complete_model,
    ),
    *,
    board: BoardOrLast,
    where: WhereAll,
    dry_run: bool = Option(False, "--dry-run", help="Report what would be sent, and send nothing."),
    keep: int = Option(3, min=1, help="How many releases of a model to keep on the board."),
    health: Health,
    min_accuracy: float | None = Option(
        None,
        metavar="X",
        min=0.0,
        max=1.0,
        help="Refuse packages with no recorded accuracy or agreement with the float network, or one below X.",
    ),
    overrides: Overriding,
) -> None:
    """Put packages on boards as releases, and switch to them there.

    Files that the board already has are not sent again. A release is switched to once it has passed its self-test on
    the board; until then, and if anything goes wrong, the one in use stays. After the switch it is tested once more,
    and by the health check if there is one; if it fails, the board goes back to the previous release.

    Quantised networks that lost more accuracy than the board's profile allows (`max_accuracy_loss`), and all networks
    without a record of what --min-accuracy asks for, are refused before anything is sent (docs/quantisation.md).

    Several boards are served at the same time. A board or a network that fails does not stop the others.

    Examples: edgedeploy push digits --board rpi4; edgedeploy push --board rpi4 --host pi@10.0.0.7 --host pi@10.0.0.8

    Example: edgedeploy push dist/rpi4/mobilenet_v1-int8.tar.gz --board rpi4 --min-accuracy 0.9

    Example: edgedeploy push digits --board rpi4 --health-check 'systemctl --user restart reader && curl -fs localhost'
    """
    from edgedeploy.api.boards import release_of
    from edgedeploy.api.packages import check_named
    from edgedeploy.release.gate import AccuracyRule
    from edgedeploy.release.layout import Release
    from edgedeploy.release.push import push_all

    if overrides.fields and (not models or any(name.endswith(".tar.gz") for name in models)):
        raise InputError("--toolchain and the options after it do not go with packages", why="they are built already")
    progress = shown_progress()
    resolved = board.resolved(overrides.fields)
    rule = AccuracyRule(min_accuracy, resolved.profile.max_accuracy_loss)
    options = {"dry_run": dry_run, "keep": keep, "health": health.of(resolved), "accuracy": rule}
    names = models or _built_packages(resolved)
    alone = len(names) == 1
    checked = {name: attempted(partial(check_named, name), alone=alone) for name in names}
    wrong = {name: error for name, error in checked.items() if error}

    def releases() -> dict[str, Release | EdgedeployError]:
        make = {name: partial(release_of, name, resolved, progress) for name in names}
        return {name: wrong[name] if name in wrong else attempted(make[name], alone=alone) for name in names}

    if len(wrong) == len(names):  # before a board is reached or started
        print_result([{"host": None, "model": name, **error.to_dict()} for name, error in wrong.items()])
        conclude(wrong.items())
    targets = where.addresses(resolved)
    results = push_all(targets, releases, options, strict=where.strict_host_key, progress=progress)
    if len(results) == 1 and isinstance(results[0][2], EdgedeployError):
        raise results[0][2]
    titles = ["board", "model", "release", "result", "sent, bytes", "time, s"]
    print_result(
        [{"host": str(address), "model": model, **outcome.to_dict()} for address, model, outcome in results],
        as_table(titles, (_row(*result) for result in results), right=titles[-2:]),
    )
    cut_off = {}
    for address, model, outcome in results:
        if isinstance(outcome, EdgedeployError):
            continue
        if outcome.health:
            print_text(f"the health check of {model} on {address} printed:", *outcome.health.expandtabs().splitlines())
        if outcome.compiled_up_to:
            cut_off[outcome.model] = outcome.compiled_up_to
    for model, outputs in cut_off.items():
        print_text(
            f"note: on the board {model} ends with {', '.join(outputs)}",
            "the rest depends on data: edgedeploy's Python computes it on the machine that calls `run` or "
            "`demo`, see docs/tails.md",
        )
    # A board that was not reached is one failure, however many models there are.
    first = {id(outcome): (address, model) for address, model, outcome in reversed(results)}
    conclude(
        (f"{model} on {address}" if model else str(address), outcome)
        for address, model, outcome in results
        if first[id(outcome)] == (address, model)
    )


def _built_packages(board: ResolvedBoard) -> list[str]:
    from edgedeploy.building import default_output

    folder = default_output("any", board).parent
    packages = sorted(map(str, folder.glob("*.tar.gz")))
    if not packages:
        hints = [f"edgedeploy build --board {board.name}", "name a model"]
        raise InputError(f"no packages in {folder}", hints=hints)
    return packages


def _row(address: Address, model: str | None, outcome: Pushed | EdgedeployError) -> list[str]:
    """A line of the table, of at most 100 columns: reasons of failures follow it, and --json lists the files."""
    if isinstance(outcome, EdgedeployError):
        return [str(address), model or "", "", outcome.state, "", ""]
    files = f", {count(len(outcome.uploaded), 'file')}" if outcome.uploaded else ""
    sent = sum(outcome.uploaded.values()) if outcome.id is None else outcome.sent
    what = [str(address), outcome.model, outcome.id or "", outcome.state + files]
    return [*what, f"{sent:,}", f"{outcome.seconds:.1f}"]
