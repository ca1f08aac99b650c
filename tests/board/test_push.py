"""Releases: put on a board whole, tested there, switched to at once; and pushes that go wrong."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from cable import Cable
from conftest import Command
from push_and_die import Meddler
from support.agents import digits
from support.commands import generous, json_of, output_of, put, refused
from support.detection_networks import detections
from support.networks import tiny
from support.profiles import write_profile
from support.services import BASE
from support.virtual_boards import Bench, Start, with_manifest

from edgedeploy import errors
from edgedeploy.agent.build import agent_for
from edgedeploy.model.quantised import Agreement, Quantisation
from edgedeploy.package.archive import describe, read_manifest, read_package, write_package
from edgedeploy.release.gate import AccuracyRule
from edgedeploy.release.layout import Release
from edgedeploy.release.lock import locked
from edgedeploy.release.push import Pushed, push, push_all
from edgedeploy.release.switching import HealthCheck
from edgedeploy.remote.address import address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.target.board import load_board
from edgedeploy.virtual.board import down


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
    path = put(tmp_path / "digits.tar.gz", content)
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
    put(Path("dist/local/digits.tar.gz"), bench.first.read_bytes())
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


# Pushes of a second release that go wrong: the first stays in use, the message says why, and the next succeeds.


@pytest.fixture
def old(bench: Bench) -> str:
    return str(bench.push(bench.first).id)


def second_push_succeeds(bench: Bench) -> Pushed:
    pushed = bench.push(bench.second)
    assert bench.current() == pushed.id
    assert bench.current_works()
    assert bench.say(f"cd {BASE} && ls -d staging-* blobs/incoming-* releases/*/staging-* 2>/dev/null") == ""
    return pushed


def nothing_changed(bench: Bench, old: str) -> None:
    """What was in use before is and works; the same push again succeeds."""
    assert bench.current() == old
    assert bench.current_works()
    second_push_succeeds(bench)


KEPT = ["before probe", "before take stock", "before upload", "at 1", "at 40000", "at 70000", "after upload"]
KEPT += [f"{when} {stage}" for stage in ("assemble", "self-test") for when in ("before", "during", "after")]
KEPT += ["before switch"]
SWITCHED = ["after switch", "during confirm", "after confirm", "before sweep", "during sweep", "after sweep"]


def push_and_die(bench: Bench, moment: str) -> None:
    script = Path(__file__).with_name("push_and_die.py")
    command = [sys.executable, str(script), bench.virtual.name, str(bench.second), str(bench.agent), moment]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr


@pytest.mark.quick("at 40000", "before switch")
@pytest.mark.parametrize("moment", [*KEPT, *SWITCHED])
def test_the_push_is_killed(bench: Bench, old: str, moment: str) -> None:
    push_and_die(bench, moment)
    assert (bench.current() == old) == (moment in KEPT)
    assert bench.current_works()
    # What was in use before is known wherever that happened.
    stock = bench.stock()
    assert (stock.record.way[-1] if bench.current() == old else stock.record.previous(stock.releases)) == old
    # The lock ended with its owner: nobody has to wait for it, or remove it.
    started = time.monotonic()
    second_push_succeeds(bench)
    assert time.monotonic() - started < generous(10)


def test_what_was_uploaded_before_is_not_sent_again(bench: Bench, old: str) -> None:
    push_and_die(bench, "after upload")
    assert second_push_succeeds(bench).uploaded == {}


def test_a_lost_lock_hides_no_error(bench: Bench, old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """paramiko raises EOFError where it meets the loss first, at whatever channel sends something next."""

    def lost(_: object, data: bytes) -> None:
        raise EOFError

    def lose(connection: Connection) -> None:
        monkeypatch.setattr(paramiko.packet.Packetizer, "write_all", lost)
        connection.run("true")

    with (
        Cable(bench.virtual, tmp_path) as cable,
        Connection(cable.address) as connection,
        pytest.raises(errors.BoardConnectionError, match="broke"),
        locked(connection),
    ):
        lose(connection)


@pytest.mark.quick("0.1", "0.9")
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_connection_is_cut(bench: Bench, old: str, tmp_path: Path, share: float) -> None:
    release = bench.release(bench.second)
    with Cable(bench.virtual, tmp_path) as whole:
        with Connection(whole.address) as connection:
            push(connection, bench.release(bench.variant(1)), dry_run=True)
        handshake = whole.sent
    sent = ("manifest.json", "model.so", "selftest/output-0.bin", "selftest/output-0-edge.bin")
    payload = sum(len(release.contents[name]) for name in sent)
    with (
        Cable(bench.virtual, tmp_path, cut_after=handshake + int(share * payload)) as cable,
        Connection(cable.address) as connection,
        pytest.raises(errors.BoardConnectionError, match="broke") as caught,
    ):
        push(connection, release)
    assert any("try again" in hint for hint in caught.value.hints)
    nothing_changed(bench, old)


@pytest.mark.quick("switch")
@pytest.mark.parametrize("stage", ["upload", "assemble", "self-test", "switch"])
def test_the_board_loses_its_power(bench: Bench, start: Start, stage: str) -> None:
    virtual = start("local", name="fragile")
    with (
        Connection(address_of(virtual)) as connection,
        pytest.raises(errors.BoardConnectionError, match="broke") as caught,
    ):
        push(connection, bench.release(bench.second), progress=Meddler(f"before {stage}", lambda: down(virtual)))
    assert any("power" in hint for hint in caught.value.hints)


@pytest.fixture
def small(start: Start, bench: Bench) -> Iterator[Bench]:
    """A board with so little room that it can be filled."""
    virtual = start("local", name="small", disk_mib=32)
    with replace(bench, virtual=virtual) as made:
        made.say(f"rm -rf {BASE} filler")
        made.push(made.first)
        yield made
    down(virtual)


def fill(bench: Bench, *, leaving_kib: int) -> None:
    free = int(bench.say("df -Pk . | awk 'NR == 2 { print $4 }'"))
    bench.say(f"dd if=/dev/zero of=filler bs=1k count={free - leaving_kib}")


def test_a_full_disk_is_noticed_before_anything_is_sent(small: Bench) -> None:
    old = small.current()
    fill(small, leaving_kib=100)
    with pytest.raises(errors.UnsuitableBoardError, match=r"KiB are needed, \d+ KiB are free") as caught:
        small.push(small.second)
    assert any("releases gc" in hint for hint in caught.value.hints)
    small.say("rm filler")
    nothing_changed(small, old)


@pytest.mark.quick("0-upload", "20-assemble")
@pytest.mark.parametrize("stage", ["upload", "assemble"])
@pytest.mark.parametrize("leaving_kib", [0, 20])
def test_the_disk_fills_up_meanwhile(small: Bench, stage: str, leaving_kib: int) -> None:
    old = small.current()
    meddler = Meddler(f"before {stage}", lambda: fill(small, leaving_kib=leaving_kib))
    try:
        small.push(small.second, progress=meddler)
    except errors.ReleaseError as error:
        assert "No space left" in str(error)  # noqa: PT017
        assert any("releases gc" in hint for hint in error.hints)  # noqa: PT017
        assert small.current() == old
    else:
        # Links and folders of a file system in memory need no room: only uploads do.
        assert stage == "assemble"
    assert small.current_works()
    small.say("rm filler")
    second_push_succeeds(small)


@pytest.mark.slow
def test_going_back_needs_no_room_on_the_disk(small: Bench) -> None:
    old = small.current()
    meddler = Meddler("before confirm", lambda: fill(small, leaving_kib=0))
    with pytest.raises(errors.UnhealthyReleaseError, match=f"the board went back to {old}"):
        small.push(small.second, health=HealthCheck("false"), progress=meddler)
    small.say("rm filler")
    nothing_changed(small, old)


FLIP = "printf 'X' | dd of={} bs=1 seek=5000 conv=notrunc"


def test_a_byte_changes_between_upload_and_self_test(bench: Bench, old: str) -> None:
    blob = bench.release(bench.second).blobs["model.so"]
    deed = f"cd {BASE} && {FLIP.format(f'blobs/{blob}')}"
    with pytest.raises(errors.ReleaseError, match="self-test") as caught:
        bench.push(bench.second, progress=Meddler("before assemble", lambda: bench.say(deed)))
    assert "model.so" in str(caught.value)
    assert bench.current() == old
    assert bench.current_works()
    assert "model.so" in second_push_succeeds(bench).uploaded


@pytest.mark.parametrize(
    ("deed", "uploaded"),
    [(FLIP.format("model.so"), {"model.so"}), ("echo other >new && mv new model.so", set())],
    ids=["a byte changed", "a file was replaced"],
)
def test_the_release_in_use_is_repaired(bench: Bench, old: str, deed: str, uploaded: set[str]) -> None:
    bench.say(f"cd {BASE}/releases/digits/{old} && {deed}")
    assert not bench.current_works()
    repaired = bench.push(bench.first)
    assert (repaired.state, set(repaired.uploaded)) == ("pushed", uploaded)
    assert bench.current() == repaired.id != old
    assert bench.current_works()


def test_outputs_differ_on_the_board(bench: Bench, old: str, tmp_path: Path) -> None:
    manifest, contents = read_package(bench.second)
    wrong = {**contents, "selftest/output-0.bin": bytes(len(contents["selftest/output-0.bin"]))}
    path = tmp_path / "wrong.tar.gz"
    write_package(path, manifest.model_copy(update={"files": describe(wrong)}), wrong)
    with pytest.raises(errors.ReleaseError, match=r"output 'prob' of the random inputs differs by .* is allowed"):
        bench.push(path)
    nothing_changed(bench, old)


@pytest.mark.quick("a name that climbs out", "a link")
@pytest.mark.parametrize(
    "trick",
    [
        "rm model.so && ln -s /etc/passwd model.so",
        "rm model.so && mkdir model.so",
        "rm selftest/input-0.bin",
        "rm model.so && cp manifest.json model.so",
        "sed -i s,model.so,../model.so, manifest.json",
        "echo '{' >manifest.json",
    ],
    ids=["a link", "a folder", "a missing file", "another file", "a name that climbs out", "a broken manifest"],
)
def test_the_board_refuses_a_hostile_package(bench: Bench, old: str, trick: str) -> None:
    folder = f"{BASE}/releases/digits/staging-*"
    deed = Meddler("before self-test", lambda: bench.say(f"cd {folder}/ && chmod +w manifest.json && {trick}"))
    with pytest.raises(errors.ReleaseError, match="self-test"):
        bench.push(bench.second, progress=deed)
    nothing_changed(bench, old)


def test_the_host_key_changes(bench: Bench, old: str, tmp_path: Path, start: Start) -> None:
    stranger = start("local", name="second")
    with Cable(bench.virtual, tmp_path) as cable:
        known = cable.address.known_hosts
        theirs = known.read_text()
        known.write_text(f"[127.0.0.1]:{cable.address.port} {stranger.known_hosts.read_text().partition(' ')[2]}")
        with pytest.raises(errors.HostKeyError, match="nothing was sent") as caught:
            Connection(cable.address)
        assert any("ssh-keygen" in hint for hint in caught.value.hints)
        known.write_text(theirs)
        with Connection(cable.address) as connection:
            push(connection, bench.release(bench.second))
    assert bench.current() != old
    assert bench.current_works()


def refused_there(bench: Bench, package: Path, numbers: str) -> None:
    """Push a package that the board cannot run, and see that nothing was sent."""
    before = bench.current()
    with bench.connected() as connection:
        with pytest.raises(errors.UnsuitableBoardError, match=numbers) as caught:
            push(connection, bench.release(package))
        assert connection.sent < 4000
    assert "nothing was sent" in str(caught.value)
    assert any("build it for a profile that describes this board" in hint for hint in caught.value.hints)
    assert bench.current() == before


def test_aarch64_boards_refuse_armhf(start: Start, bench: Bench, tmp_path: Path) -> None:
    with replace(bench, virtual=start("rpi4")) as board:
        refused_there(
            board, digits(tmp_path / "armhf.tar.gz", "rpi-armhf"), r"EM_ARM \(32 bits\).*EM_AARCH64 \(64 bits\)"
        )


# Slow, as every test that needs an agent for another architecture.
@pytest.mark.slow
def test_a_refusal_changes_nothing(start: Start, tmp_path: Path) -> None:
    right, wrong = (digits(tmp_path / f"{board}.tar.gz", board) for board in ("rpi4", "rpi-armhf"))
    other = with_manifest(right, "other.tar.gz", build_key="0" * 64)
    with Bench(start("rpi4"), agent_for(load_board("rpi4")).path, right, other, start, "rpi4") as board:
        board.say(f"rm -rf {BASE}")
        board.push(board.first)
        refused_there(board, wrong, r"EM_ARM \(32 bits\).*EM_AARCH64 \(64 bits\)")
        assert board.current_works()
        second_push_succeeds(board)


def test_a_package_that_needs_a_newer_glibc_is_refused(start: Start, bench: Bench, tmp_path: Path) -> None:
    right = digits(tmp_path / "digits.tar.gz", write_profile(tmp_path, "local", toolchain="zig", glibc="2.28"))
    other = with_manifest(right, "other.tar.gz", build_key="0" * 64)
    newer = with_manifest(right, "newer.tar.gz", abi=read_manifest(right).abi.model_copy(update={"glibc": "2.34"}))
    with Bench(start("local", name="old", suite="bullseye"), bench.agent, right, other, start) as board:
        assert board.push(right).state == "pushed"
        refused_there(board, newer, r"needs glibc 2\.34, the board has 2\.31")
        assert board.current_works()
        second_push_succeeds(board)
