"""Measuring networks against other inference engines."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

from edgedeploy.api.packages import AnyBoard, resolved
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.benchmarking import RUNS_ON_DEVICES
from edgedeploy.benchmarking.board import measure_on_board
from edgedeploy.benchmarking.engines import find_peers
from edgedeploy.benchmarking.measure import Measurement, leaving_out, measure
from edgedeploy.benchmarking.networks import candidates
from edgedeploy.benchmarking.page import write_page
from edgedeploy.benchmarking.report import Report, Skipped
from edgedeploy.errors import EdgedeployError, InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.report import require_report
from edgedeploy.runtime.opening import Place
from edgedeploy.runtime.session import check_threads, processors


def bench(
    networks: Sequence[str | PathLike[str]],
    *,
    board: AnyBoard = "local",
    host: str | None = None,
    virtual: bool | None = None,
    strict_host_key: bool = False,
    against: Sequence[str] | None = None,
    threads: int | None = None,
    rounds: int = 10,
    runs: int | None = None,
    batches: Sequence[int] = (),
    tuned: str | PathLike[str] | None = None,
    shapes: Shapes | None = None,
    options: ImportOptions = AS_THE_FILE_SAYS,
    energy: bool = False,
    profile: bool = False,
    page: str | PathLike[str] | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Measure networks against other inference engines, interleaved, with the same number of threads.

    An engine that is not installed or cannot run a network is named in the report and left out. So is one of several
    networks that is unavailable or cannot be built or measured (`Report.failed`), if another one was measured. On a
    board over SSH, the engines named in `against` are measured: their wheels are brought there, and removed afterwards.

    Args:
        networks: names of the zoo, or networks' files.
        host: its address, if not the profile's; `local` measures code for another board on this machine.
        virtual: whether to use the profile's virtual board; as configured if None.
        strict_host_key: whether to refuse boards with unknown host keys.
        against: names of engines; those for processors that are installed unless given.
        threads: threads to use; the board's cores unless given.
        rounds: the number of rounds; each engine has a turn in each.
        runs: the number of inferences of each engine to time; unless given, as many as fit into a tenth of a second
            each round, or 600 for boards with a device.
        batches: sizes of the first dimension of every input: each network is measured with each. Networks without
            batches are named in the report and left out.
        tuned: tuning records to build with, a folder or a board's name; edgedeploy without them is then measured, too,
            as `edgedeploy-untuned`. The board's own are used unless given.
        shapes: shapes of inputs that the file leaves open, by name; for one network only.
        options: what else the file leaves open; for one network only.
        energy: whether to measure the energy of an inference, too, if the board reports power.
        profile: whether to measure the time by function, too, for engines that report it.
        page: an HTML file to write, with tables and charts; it needs the extra `report`.

    Raises:
        UnknownNameError: there is no such engine.
        InputError: no network supports any of the batches.
        UnsupportedError: a page was asked for, and its packages are not installed; or energy was, and the board does
            not report power.
    """
    if page is not None:
        require_report()
    peers = find_peers(against)
    place = Place(resolved(board), host, virtual, strict_host_key)
    facts = place.board.profile
    if runs is None and facts.accelerator:
        runs = RUNS_ON_DEVICES
    count = check_threads(threads) if threads and not place.remote else min(facts.cores, processors())
    skipped: list[Skipped] = []
    failed: dict[str, EdgedeployError] | None = {} if len(networks) > 1 else None
    found = candidates(
        [fspath(each) for each in networks],
        place.board,
        shapes,
        progress,
        options=options,
        batches=batches,
        tuned=None if tuned is None else fspath(tuned),
        left_out=leaving_out(peers, skipped, progress),
        failed=failed,
    )
    if not found:
        if failed:
            raise next(iter(failed.values()))
        raise InputError("there is nothing to measure", why=skipped[0].reason)
    how = Measurement(rounds, runs, skipped, failed, energy, facts if profile else None, progress)
    if place.remote:
        if against is None:
            reason = "engines are brought to a board only if --against names them"
            skipped += [Skipped(peer.name, [network.case for network in found], reason) for peer in peers]
            peers = []
        report = measure_on_board(found, peers, place, threads, how)
    else:
        report = measure(found, peers, count, how)
    if page is not None:
        write_page(report, Path(page))
    return report
