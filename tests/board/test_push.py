"""Releases: put on a board whole, tested there, switched to at once."""

import json
from pathlib import Path

import pytest
from cable import Cable
from conftest import Command
from support.board_releases import Bench, with_manifest
from support.commands import json_of, output_of, refused
from support.detection_networks import detections
from support.networks import tiny
from support.services import BASE

from edgedeploy import errors
from edgedeploy.model.quantised import Agreement, Quantisation
from edgedeploy.package.archive import read_manifest, read_package
from edgedeploy.release.gate import AccuracyRule
from edgedeploy.release.layout import Release
from edgedeploy.release.lock import locked
from edgedeploy.release.push import push, push_all
from edgedeploy.remote.connection import Connection


def test_a_release_is_the_package_with_its_agent(bench: Bench) -> None:
    pushed = bench.push(bench.first)
    assert (pushed.state, pushed.test["passed"]) == ("pushed", True)
    _, contents = read_package(bench.first)
    found = bench.say(f"cd {BASE}/releases/digits/current/ && find . -type f | sort").splitlines()
    assert found == sorted(f"./{name}" for name in [*contents, "manifest.json", "agent"])
    assert bench.current() == pushed.id
    assert bench.current_works()


def test_only_what_changed_is_sent(bench: Bench, tmp_path: Path) -> None:
    first = bench.push(bench.first)
    with Cable(bench.virtual, tmp_path) as cable, Connection(cable.address) as connection:
        again = push(connection, bench.release(bench.first))
        assert cable.sent < 11_000
    assert (again.state, again.id, again.uploaded) == ("already there", first.id, {})
    with Cable(bench.virtual, tmp_path) as cable, Connection(cable.address) as connection:
        second = push(connection, bench.release(bench.second))
        changed = sum(second.uploaded.values())
        # The commands, their encryption and the greeting of SSH beside it.
        assert changed < cable.sent < changed + 16_000
    tensors = {"selftest/output-0.bin", "selftest/output-0-edge.bin"}
    assert set(second.uploaded) == {"manifest.json", "model.so", *tensors}
    assert bench.current() == second.id


def test_two_models_share_what_is_equal(bench: Bench) -> None:
    bench.push(bench.first)
    renamed = with_manifest(bench.first, "renamed.tar.gz", model="renamed")
    assert set(bench.push(renamed).uploaded) == {"manifest.json"}
    assert bench.current("renamed") != ""
    assert bench.current() != ""


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    plan = bench.push(bench.first, dry_run=True)
    assert plan.state == "would be pushed"
    assert "model.so" in plan.uploaded
    assert bench.say(f"ls {BASE} 2>/dev/null") == ""


def test_old_releases_go_with_the_files_that_no_other_has(bench: Bench) -> None:
    bench.push(bench.first)
    middle = bench.push(bench.variant(1))
    last = bench.push(bench.second, keep=2)
    assert bench.releases() == [middle.id, last.id]
    assert bench.current_works()
    bench.push(bench.first, keep=1)
    names = bench.say(f"ls {BASE}/blobs").split()
    assert sorted(names) == sorted(set(bench.release(bench.first).blobs.values()))


def test_going_back_and_forth(bench: Bench, board_command: Command) -> None:
    first, second = bench.push(bench.first), bench.push(bench.second)
    assert first.id in output_of(board_command, "releases", "rollback", "digits", *bench.at)
    assert bench.current() == first.id
    err = refused(board_command, 16, "releases", "rollback", "digits", *bench.at)
    assert "its record knows of none in use before" in err
    assert f"releases activate digits {second.id}" in err
    assert board_command("releases", "activate", "digits", second.id, *bench.at)[0] == 0
    assert bench.current() == second.id
    listed = json_of(board_command, "releases", "list", *bench.at)
    assert [(each["id"], each["current"]) for each in listed] == [(first.id, False), (second.id, True)]
    assert board_command("releases", "gc", "--keep", "1", *bench.at)[1] == f"digits/{first.id} is removed\n"
    assert bench.releases() == [second.id]
    assert second.id in board_command("releases", "list", *bench.at)[1]


@pytest.mark.parametrize("name", ["../x", "20260101T000000Z-zzzzzzzz", "current"])
def test_names_of_releases_are_not_paths(bench: Bench, board_command: Command, name: str) -> None:
    assert board_command("releases", "activate", "digits", name, "--host", bench.host)[0] == 7


def test_a_package_for_a_processor_with_more_features_is_refused_before_anything_is_sent(bench: Bench) -> None:
    before = bench.push(bench.first)
    # Of another architecture: what a later one of this architecture has, this machine may have too.
    abi = read_manifest(bench.first).abi.model_copy(update={"cpu": "cortex-a76"})
    package = with_manifest(bench.first, "demanding.tar.gz", abi=abi)
    with bench.connected() as connection, pytest.raises(errors.UnsuitableBoardError, match=r"cortex-a76.*asimddp"):
        push(connection, bench.release(package))
    assert connection.sent < 4000
    assert bench.current() == before.id


def test_a_network_that_lost_too_much_is_refused_before_anything_is_sent(bench: Bench) -> None:
    before = bench.push(bench.first)
    agreeing = Quantisation(method="minmax", samples=50, agreement=Agreement(of="top-1", value=0.9, samples=50))
    package = with_manifest(bench.first, "inaccurate.tar.gz", quantisation=agreeing)
    with bench.connected() as connection:
        sent = connection.sent
        for rule in (AccuracyRule(minimum=0.95), AccuracyRule(max_loss=0.05)):
            with pytest.raises(errors.InaccurateReleaseError, match=r"90\.00%"):
                push(connection, bench.release(package), accuracy=rule)
        assert connection.sent == sent
        assert bench.current() == before.id
        pushed = push(connection, bench.release(package), accuracy=AccuracyRule(minimum=0.9, max_loss=0.11))
    assert bench.current() == pushed.id
    assert bench.current_works()


def test_packages_that_are_not_sound_are_refused_here(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(errors.PackageError, match="model: must match"):
        bench.release(with_manifest(bench.first, "evil.tar.gz", model="../../evil"))
    content = bytearray(bench.first.read_bytes())
    content[len(content) // 2] ^= 1
    path = tmp_path / "digits.tar.gz"
    path.write_bytes(content)
    with pytest.raises(errors.PackageError):
        bench.release(path)


def test_a_board_that_we_may_not_write_to_is_reported(bench: Bench) -> None:
    bench.say(f"mkdir -p .local/share && touch {BASE}")
    try:
        with pytest.raises(errors.ReleaseError, match="cannot be created"):
            bench.push(bench.first)
    finally:
        bench.say(f"rm {BASE}")


def test_several_boards_are_pushed_to_at_once(bench: Bench, board_command: Command) -> None:
    push = ("push", bench.first, "--board", "local", "--host", bench.host, "--host", f"virtual:{bench.other().name}")
    assert output_of(board_command, *push).count("pushed") == 2
    assert [each["state"] for each in json_of(board_command, *push)] == ["already there", "already there"]


def test_push_says_what_the_board_leaves_uncomputed(bench: Bench, board_command: Command, tmp_path: Path) -> None:
    package = json_of(board_command, "build", detections(tmp_path / "boxes.onnx"))[0]["package"]
    names = [spec.name for spec in read_manifest(Path(package)).outputs]
    out = " ".join(output_of(board_command, "push", package, *bench.at).split())
    assert f"note: on the board boxes ends with {', '.join(names)}" in out
    assert "edgedeploy's Python computes it" in out
    assert json_of(board_command, "push", package, *bench.at)[0]["compiled_up_to"] == names
    assert "note:" not in output_of(board_command, "push", bench.first, *bench.at)
    assert json_of(board_command, "push", bench.first, *bench.at)[0]["compiled_up_to"] == []


def test_a_board_that_fails_does_not_stop_the_others(bench: Bench, board_command: Command) -> None:
    hosts = ("--host", "board@127.0.0.1:1", "--host", bench.host)
    code, out, err = board_command("push", bench.first, "--board", "local", *hosts)
    assert code == 13
    assert [line.split() for line in out.splitlines()][1] == ["board@127.0.0.1:1", "digits", "failed"]
    assert "pushed, " in out
    assert max(map(len, out.splitlines())) <= 100
    assert "board@127.0.0.1:1 failed: board@127.0.0.1:1 cannot be reached" in err
    assert bench.current_works()


def test_boards_that_cannot_be_reached_are_told_before_anything_is_built(command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    nowhere = ("--host", "board@127.0.0.1:1")
    err = refused(command, 13, "push", net, "--board", "rpi4", *nowhere)
    assert err.count("error: board@127.0.0.1:1 cannot be reached") == 1
    code, out, err = command("push", net, "--board", "rpi4", *nowhere, "--host", "board@127.0.0.1:2", "--json")
    assert code == 13
    assert [(each["host"][-1], each["model"], each["state"]) for each in json.loads(out)] == [
        ("1", None, "failed"),
        ("2", None, "failed"),
    ]
    assert "building" not in err
    assert not list(tmp_path.rglob("*.tar.gz"))


def test_a_build_that_only_the_virtual_board_checked_says_so(board_command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx")
    out = output_of(board_command, "build", net, "--no-check", "--virtual", "--force")
    assert " within 0.0001\nchecked: on the virtual board\n" in out
    assert "not compared\nchecked: no\n" in board_command("build", net, "--no-check")[1]


@pytest.mark.parametrize("what", ["list", "gc"])
def test_an_address_alone_says_whose_releases_are_meant(bench: Bench, board_command: Command, what: str) -> None:
    output_of(board_command, "releases", what, "--host", bench.host)
    err = refused(board_command, 4, "releases", what, "--host", bench.host, "--board", "lokal")
    assert "did you mean local" in err


def test_without_a_board_the_last_one_that_was_built_for_is_meant(bench: Bench, board_command: Command) -> None:
    Path("dist/local").mkdir(parents=True)
    Path("dist/local/digits.tar.gz").write_bytes(bench.first.read_bytes())
    code, out, err = board_command("push", "--host", bench.host)
    assert code == 0, err
    assert "board local, the last one built for" in err
    assert "digits" in out


def test_a_connection_that_ended_during_a_build_is_made_again(bench: Bench, tmp_path: Path) -> None:
    with Cable(bench.virtual, tmp_path) as cable:

        def built() -> dict[str, Release | errors.EdgedeployError]:
            cable.cut()
            return {"first": bench.release(bench.first)}

        [(address, model, outcome)] = push_all([cable.address], built, {})
    assert (address, model) == (cable.address, "digits")
    assert bench.current() == outcome.id


def test_without_a_board_and_a_build_a_board_must_be_named(board_command: Command) -> None:
    assert "--board" in refused(board_command, 7, "push")


def test_the_lock_is_held_as_long_as_its_owner_lives(bench: Bench) -> None:
    """Signs of life keep it; the shell that holds it is gone as soon as we let go."""
    with bench.connected() as connection:
        with locked(connection) as check:
            check()
            assert bench.say(f"cat {BASE}/lock").startswith("root on")
            with pytest.raises(errors.BoardBusyError, match="process"):
                bench.push(bench.first)
        with locked(connection):
            pass
    assert bench.say("ps").count("flock") == 0
    assert bench.push(bench.first).state == "pushed"
