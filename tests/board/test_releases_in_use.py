"""What is in use on a board: recorded, confirmed by checks or undone, gone back from; trials never are."""

import json
import re
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from cable import Cable
from conftest import Command
from push_and_die import Meddler
from support.commands import becomes, json_of, output_of, refused
from support.profiles import write_profile
from support.services import BASE
from support.virtual_boards import Bench

from edgedeploy.errors import BoardConnectionError, UnhealthyReleaseError
from edgedeploy.release.lock import locked
from edgedeploy.release.push import bring, push
from edgedeploy.release.switching import MOST_BYTES, HealthCheck, previous
from edgedeploy.remote.connection import Connection
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.opening import Place, opening
from edgedeploy.target.resolved import resolve

# Slow, but for the tests that say otherwise.
pytestmark = pytest.mark.quick()


def pushed(bench: Bench, *packages: Path) -> list[str]:
    return [str(bench.push(package).id) for package in packages]


@pytest.mark.quick("*")
def test_trials_do_not_count_as_releases(bench: Bench, board_command: Command) -> None:
    [first] = pushed(bench, bench.first)
    for number in range(3):
        output_of(board_command, "run", bench.variant(number), *bench.at)
    assert bench.releases() == [first]
    [second] = pushed(bench, bench.second)
    assert bench.releases() == [first, second]
    assert bench.trials() == []
    assert board_command("releases", "rollback", "digits", *bench.at)[0] == 0
    assert bench.current() == first
    assert bench.current_works()


def test_going_back_goes_on_going_back(bench: Bench, board_command: Command) -> None:
    first, second, _ = pushed(bench, bench.first, bench.variant(1), bench.second)
    for expected in (second, first):
        assert board_command("releases", "rollback", "digits", *bench.at)[0] == 0
        assert bench.current() == expected
    assert board_command("releases", "rollback", "digits", *bench.at)[0] == 16
    assert bench.current() == first
    events = [(event, id) for id in (second, first) for event in ("returned", "confirmed")]
    assert bench.events()[-4:] == events


def test_gc_after_going_back_keeps_what_is_in_use(bench: Bench, board_command: Command) -> None:
    first, second = pushed(bench, bench.first, bench.second)
    assert board_command("releases", "rollback", "digits", *bench.at)[0] == 0
    bench.bring(bench.variant(1))
    [trial] = bench.trials()
    collect = ("releases", "gc", "--keep", 1, *bench.at)
    assert output_of(board_command, *collect) == f"digits/{second} is removed\ndigits/{trial} is removed, a trial\n"
    assert (bench.releases(), bench.trials()) == ([first], [])
    assert output_of(board_command, *collect) == "no model has more than 1 release, and there are no trials\n"
    assert bench.current_works()


def test_a_board_that_lost_its_record_goes_on_working(bench: Bench, board_command: Command) -> None:
    first, second = pushed(bench, bench.first, bench.variant(1))
    bench.say(f"rm {BASE}/releases/digits/history")
    err = refused(board_command, 16, "releases", "rollback", "digits", *bench.at)
    assert f"edgedeploy releases activate digits {first}" in err
    [third] = pushed(bench, bench.second)
    assert bench.events()[0] == ("found", second)
    assert bench.releases() == [first, second, third]
    assert board_command("releases", "rollback", "digits", *bench.at)[0] == 0
    assert bench.current() == second


def test_the_list_says_what_was_in_use_and_when(bench: Bench, board_command: Command) -> None:
    began = datetime.now(timezone.utc).replace(microsecond=0)
    first, second = pushed(bench, bench.first, bench.second)
    bench.bring(bench.variant(1))
    listed = json_of(board_command, "releases", "list", *bench.at)
    assert [(each["id"], each["state"]) for each in listed[:2]] == [(first, "was in use"), (second, "in use")]
    assert (listed[2]["state"], listed[2]["trial"], listed[2]["current"]) == ("trial", True, False)
    for each in listed[:2]:
        assert [event["event"] for event in each["history"]] == ["switched", "confirmed"]
        assert began <= datetime.fromisoformat(each["history"][0]["time"]) <= datetime.now(timezone.utc)
        assert each["history"][0]["who"].startswith("root@")
        assert began <= datetime.fromisoformat(each["made"])
    board_command("releases", "gc", "--keep", 1, *bench.at)
    history = json_of(board_command, "releases", "list", "--history", *bench.at)
    assert [(each["event"], each["id"]) for each in history] == bench.events()
    assert {each["id"] for each in history} == {first, second}  # also of what is gone
    out = board_command("releases", "list", *bench.at)[1]
    assert re.search(rf"digits +{second} +\d{{4}}-\d\d-\d\d \d\d:\d\d +in use +[\d,]+ +confirmed .* by root@", out)
    out = board_command("releases", "list", "--history", *bench.at)[1]
    assert re.search(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d +digits +{first} +switched +root@", out)


def test_trials_of_what_is_there_send_nothing(bench: Bench) -> None:
    [first] = pushed(bench, bench.first)
    assert bench.bring(bench.first).folder == f"releases/digits/{first}"
    assert bench.trials() == []
    bench.bring(bench.second)
    before = bench.trials()
    with bench.connected() as connection, locked(connection):
        sent = connection.sent
        bring(connection, bench.release(bench.second), temporarily=False)
        assert connection.sent - sent < 10_000
    assert bench.trials() == before
    bench.bring(bench.variant(1))
    assert len(bench.trials()) == 1
    assert bench.trials() != before


def tried(bench: Bench, *packages: Path) -> list[np.ndarray]:
    """The outputs, for the same input, of packages that are tried together and whose files are gone by then."""
    with opening(Place(resolve("local"), bench.host), temporarily=True) as open_all:
        networks = open_all(packages)
        assert bench.say(f"cd {BASE} && ls -A blobs trials") == "blobs:\n\ntrials:"
        tensors = {spec.name: fill(spec, "random") for spec in networks[0].runner.inputs}
        return [network.runner.run(tensors)["prob"] for network in networks]


def test_a_temporary_trial_runs_on_without_its_files(bench: Bench) -> None:
    assert not np.array_equal(*tried(bench, bench.first, bench.second))


@pytest.mark.quick("*")
def test_equal_packages_are_tried_side_by_side(bench: Bench) -> None:
    first, *others = tried(bench, *[bench.first] * 4)
    assert all(np.array_equal(first, other) for other in others)


DIE_WHILE_TRYING = """
import os, signal, sys
from pathlib import Path
from edgedeploy.base.progress import Progress
from edgedeploy.target.resolved import resolve
from edgedeploy.runtime import served
from edgedeploy.runtime.opening import Place, opening

served.RemoteSession.__init__ = lambda *unused: os.kill(os.getpid(), signal.SIGKILL)
with opening(Place(resolve("local"), sys.argv[1]), temporarily=True) as open_all:
    open_all([Path(sys.argv[2])])
"""


def test_what_a_killed_tuning_run_left_goes_with_the_next_command(bench: Bench, board_command: Command) -> None:
    [first] = pushed(bench, bench.first)
    blobs = bench.say(f"ls {BASE}/blobs")
    command = [sys.executable, "-c", DIE_WHILE_TRYING, bench.host, str(bench.second)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    # The lock's shell clears away what it can, the next command the rest.
    assert board_command("releases", "gc", *bench.at)[0] == 0
    assert bench.say(f"cd {BASE} && ls blobs") == blobs
    assert bench.say(f"ls -A {BASE}/trials") == ""
    assert bench.releases() == [first]


HEALTHY = HealthCheck("true")
SICK = HealthCheck("echo the reader does not answer; exit 3")


def test_a_healthy_release_is_confirmed(bench: Bench) -> None:
    script = 'echo "$EDGEDEPLOY_MODEL $EDGEDEPLOY_RELEASE"; ls; readlink ../current'
    done = bench.push(bench.first, health=HealthCheck(script))
    name, *files, target = done.health.splitlines()
    assert name == f"digits {done.id}"
    assert {"agent", "manifest.json", "model.so"} <= set(files)
    assert target == done.id
    assert bench.events() == [("switched", done.id), ("confirmed", done.id)]


@pytest.mark.quick("*")
def test_a_release_that_is_not_healthy_is_undone(bench: Bench) -> None:
    [first] = pushed(bench, bench.first)
    with pytest.raises(UnhealthyReleaseError, match="the reader does not answer") as caught:
        bench.push(bench.second, health=SICK)
    assert f"the board went back to {first}" in str(caught.value)
    assert "code 3" in str(caught.value)
    assert bench.current() == first
    assert bench.current_works()
    [*_, last] = bench.stock().record.entries
    assert (last.event.value, last.reason) == ("failed", "health-check")
    # It is not gone back to either, and another push of the same content has another chance.
    again = bench.push(bench.second, health=HEALTHY)
    assert again.state == "already there"
    assert bench.current() == again.id == last.id


def test_where_nothing_was_in_use_nothing_is_again(bench: Bench) -> None:
    with pytest.raises(UnhealthyReleaseError, match="nothing was in use before"):
        bench.push(bench.first, health=SICK)
    assert bench.current() == ""
    assert bench.push(bench.first, health=HEALTHY).id == bench.current()


def test_a_check_that_fails_for_the_release_in_use_does_not_remove_it(bench: Bench) -> None:
    [first] = pushed(bench, bench.first)
    with pytest.raises(UnhealthyReleaseError, match="it was in use before and still is"):
        bench.push(bench.first, health=SICK)
    assert bench.current() == first
    assert bench.stock().record.state(first) == "in use, failed"
    assert bench.push(bench.first, health=HEALTHY).id == first
    assert bench.stock().record.state(first) == "in use"


def test_a_release_that_does_not_work_where_it_is_used_is_undone(bench: Bench) -> None:
    [first] = pushed(bench, bench.first)
    deed = f"cd {BASE}/releases/digits/current/ && rm model.so && echo >model.so"
    with pytest.raises(UnhealthyReleaseError, match=r"model\.so"):
        bench.push(bench.second, progress=Meddler("before confirm", lambda: bench.say(deed)))
    assert bench.current() == first
    assert bench.stock().record.entries[-1].reason == "self-test"


def test_a_check_that_takes_too_long_is_ended_with_all_it_started(bench: Bench) -> None:
    [first] = pushed(bench, bench.first)
    started = time.monotonic()
    with pytest.raises(UnhealthyReleaseError, match=r"did not end within 1 s(.|\n)*waiting"):
        bench.push(bench.second, health=HealthCheck("echo waiting; sleep 987 & sleep 987", 1))
    assert time.monotonic() - started < 300
    assert bench.current() == first
    assert becomes(lambda: "sleep 987" not in bench.say("ps ax"))


def test_a_check_that_leaves_a_program_running_does_not_hold_the_push(bench: Bench) -> None:
    started = time.monotonic()
    try:
        assert bench.push(bench.first, health=HealthCheck("echo started; sleep 765 &")).health == "started"
        assert time.monotonic() - started < 300
    finally:
        bench.say("for id in $(pgrep -f '^sleep 765$'); do kill $id; done")


def test_what_a_check_prints_is_bounded_and_text(bench: Bench, board_command: Command) -> None:
    script = r"head -c 50000000 /dev/zero | tr '\0' x; printf '\nlast \033[2Jwords\n'"
    said = bench.push(bench.first, health=HealthCheck(script)).health
    assert len(said) <= MOST_BYTES
    assert said.endswith("\nlast \x1b[2Jwords")
    out = output_of(board_command, "push", bench.first, *bench.at, "--health-check", r"printf 'fine \033[2J'")
    assert r"fine \x1b[2J" in out
    err = refused(board_command, 23, "push", bench.first, *bench.at, "--health-check", r"printf 'bad \033[2J'; false")
    assert r"bad \x1b[2J" in err
    assert "\x1b[2J" not in out + err


def test_the_command_line_goes_before_the_profiles_check(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    check = "echo from the profile; exit 4"
    profile = write_profile(tmp_path, "local", cores=1, health_check=check, health_check_s=30)
    at = ("--board", profile, "--host", bench.host)
    assert "from the profile" in refused(board_command, 23, "push", bench.first, *at)
    assert board_command("push", bench.first, *at, "--health-check", "")[0] == 0
    first = bench.current()
    [said] = json_of(board_command, "push", bench.second, *at, "--health-check", "echo well")
    assert said["health_check"] == "well"
    # Going back is checked as pushing is.
    second = bench.current()
    refused(board_command, 23, "releases", "rollback", "digits", *at)
    assert bench.current() == second
    assert board_command("releases", "activate", "digits", first, *at, "--health-check", "true")[0] == 0
    assert bench.current() == first


def test_a_break_after_the_switch_leaves_it_unconfirmed(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    [first] = pushed(bench, bench.first)

    def cut_off() -> None:
        with (
            Cable(bench.virtual, tmp_path) as cable,
            Connection(cable.address) as connection,
            pytest.raises(BoardConnectionError) as caught,
        ):
            push(connection, bench.release(bench.second), progress=Meddler("before confirm", cable.cut))
        assert any("did not confirm it" in hint for hint in caught.value.hints)

    cut_off()
    second = bench.current()
    assert second != first
    listed = json_of(board_command, "releases", "list", *bench.at)
    assert [each["state"] for each in listed] == ["was in use", "in use, not confirmed"]
    # The release that was in use before is the way back, of a command as of a push that fails.
    with bench.connected() as connection:
        assert previous(connection, "digits") == first
    with pytest.raises(UnhealthyReleaseError, match=f"went back to {first}"):
        bench.push(bench.variant(1), health=SICK)
    cut_off()
    assert board_command("releases", "rollback", "digits", *bench.at)[0] == 0
    assert bench.current() == first
    cut_off()
    assert bench.push(bench.second).id == bench.current() == second
    assert bench.stock().record.state(second) == "in use"


def test_each_of_several_boards_says_what_became_of_it(bench: Bench, board_command: Command) -> None:
    hosts = [bench.host, "board@127.0.0.1:1", f"virtual:{bench.other().name}"]
    options = [part for host in hosts for part in ("--host", host)]
    push = ("push", bench.first, "--board", "local", *options, "--health-check", "test ! -e ~/sick")
    bench.say("touch sick")
    try:
        code, out, err = board_command(*push)
        assert code == 23
        assert [bool(re.search(rf"{re.escape(host)} .*failed", out)) for host in hosts] == [True, True, False]
        assert err.count(" failed: ") == 2
        said = json.loads(board_command(*push, "--json")[1])
        assert [each["host"] for each in said] == hosts
        assert [each.get("exit_code") for each in said] == [23, 13, None]
        assert said[2]["current"] is True
    finally:
        bench.say("rm sick")
    assert bench.current() == ""
