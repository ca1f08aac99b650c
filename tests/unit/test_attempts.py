"""Commands with several networks: one that fails does not stop the others, and the end says what became of each."""

import json
from pathlib import Path

import pytest
from conftest import Command
from support.commands import put, refused, refused_alone
from support.networks import tiny
from support.profiles import write_entry

from edgedeploy.base import interruption, settings
from edgedeploy.base.attempts import attempted, first_failure
from edgedeploy.base.extras import INSTALL_BUILD
from edgedeploy.demo.spec import DEMOS, default_demos
from edgedeploy.errors import CompileError, DownloadError, EdgedeployError, InternalError, ModelError, ReaderGoneError
from edgedeploy.frontends.tflite import TfLite
from edgedeploy.release.push import Pushed
from edgedeploy.remote.address import Address
from edgedeploy.remote.login import hints_for_name
from edgedeploy.target.facts import Facts

DONE = None
GONE, WRONG = DownloadError("gone"), ModelError("wrong")


@pytest.fixture
def gone(command: Command) -> str:
    """The name of a network that cannot be had."""
    return write_entry("gone", b"nowhere", note="there is no public file").stem


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        ([DONE], 0),
        ([GONE, DONE], 0),
        ([DONE, GONE, WRONG], 5),
        ([GONE, WRONG], 5),
        ([WRONG, CompileError("also wrong")], 5),
        ([GONE], 9),
    ],
)
def test_the_exit_code_is_that_of_the_first_fault(outcomes: list[object], code: int) -> None:
    failure = first_failure(outcomes)
    assert (failure.exit_code if failure else 0) == code


def test_an_error_is_what_becomes_of_the_item() -> None:
    assert attempted(lambda: 3) == 3
    assert attempted(lambda: fail(GONE)) is GONE
    ours = attempted(lambda: fail(ZeroDivisionError("by zero")))
    assert isinstance(ours, InternalError)
    assert ours.cause == "internal error: ZeroDivisionError: by zero"
    with pytest.raises(ZeroDivisionError):  # there is nothing else to go on with
        attempted(lambda: fail(ZeroDivisionError()), alone=True)


def test_ctrl_c_and_a_reader_that_went_away_end_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReaderGoneError):
        attempted(lambda: fail(ReaderGoneError("gone")))
    with pytest.raises(KeyboardInterrupt):
        attempted(lambda: fail(KeyboardInterrupt()))
    monkeypatch.setattr(interruption, "_came", True)
    with pytest.raises(KeyboardInterrupt):
        attempted(lambda: fail(CompileError("a library made this of Ctrl-C")))


def test_the_four_default_demos_say_so_in_their_files() -> None:
    assert default_demos() == ["classification", "landmark", "retinaface", "yolo-fastest"]
    assert all(len(DEMOS.load(name).stages) == 1 for name in default_demos())


class TestBuild:
    @pytest.mark.compiles
    def test_what_can_be_built_is_built_and_the_rest_is_listed(self, command: Command, gone: str) -> None:
        code, out, err = command("build", gone, "digits")
        assert code == 0
        assert "dist/local/digits.tar.gz" in out
        table, reasons = err.partition("network")[2].split("gone unavailable: ")
        rows = [line.split() for line in table.splitlines()[1:]]
        assert rows == [["gone", "unavailable"], ["digits", "built:", "dist/local/digits.tar.gz"]]
        assert reasons.startswith("cannot get gone.onnx: it has no download")
        assert "  try: " in reasons

    @pytest.mark.compiles
    def test_a_fault_gives_the_exit_code_and_stops_nothing(self, command: Command, gone: str) -> None:
        Path("broken.onnx").write_bytes(b"no network")
        code, out, _ = command("build", "broken.onnx", gone, "digits", "--json")
        assert code == 5
        said = json.loads(out)
        states = [(each["model"], each["state"], each.get("exit_code")) for each in said]
        assert states == [("broken.onnx", "failed", 5), ("gone", "unavailable", 9), ("digits", "built", None)]
        assert Path(said[2]["package"]).is_file()

    def test_where_nothing_is_built_each_reason_is_told(self, command: Command, gone: str) -> None:
        err = refused_alone(command, 4, "build", gone, "no-such-network")
        assert "gone unavailable: " in err
        assert "no-such-network failed: unknown model 'no-such-network'" in err

    def test_one_network_alone_fails_with_its_error(self, command: Command, gone: str) -> None:
        code, out, err = command("build", gone)
        assert (code, out) == (9, "")
        assert err.startswith("error: cannot get gone.onnx")
        [line] = command("build", gone, "--json")[1].splitlines()
        assert json.loads(line)["error"]["code"] == 9

    @pytest.mark.compiles
    def test_without_names_the_networks_of_the_configuration_are_built(self, command: Command, gone: str) -> None:
        tiny(Path("net.onnx"))
        Path(settings.HERE).write_text('[build]\nmodels = ["net.onnx", "gone"]\n')
        assert command("build")[0] == 0
        assert [path.name for path in Path("dist/local").glob("*.tar.gz")] == ["net.tar.gz"]

    def test_it_builds_the_default_demos_or_all_of_them(
        self, command: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("edgedeploy.api.packages.plan", lambda name, *_, **__: fail(DownloadError(f"no {name}")))
        code, out, _ = command("build", "--json")
        assert code == 9
        assert [each["model"] for each in json.loads(out)] == [DEMOS.load(name).model for name in default_demos()]
        Path(settings.HERE).write_text('[build]\nmodels = ["digits"]\n')  # which the option overrides
        put(Path("demos/broken.yaml"), "no: demo\n")
        said = json.loads(command("build", "--all-demos", "--json")[1])
        named = [each["model"] for each in said]
        assert {"digits", "retinaface", "ppocr-v4-rec", "hand-landmark"} < set(named)
        assert len(named) == len(set(named))
        assert [each["model"] for each in said if each["exit_code"] == 3] == ["broken"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["digits", "--all-demos"], "--all-demos does not go with named networks"),
            (["--all-demos", "--quantize", "."], "--quantize needs one model"),
            (["--all-demos", "--batch", "2"], "--batch needs one model"),
        ],
    )
    def test_bad_options_are_refused(self, command: Command, arguments: list[str], message: str) -> None:
        assert message in refused(command, 7, "build", *arguments)

    @pytest.mark.parametrize("stated", ["models = []", 'models = "digits"', "networks = []"])
    def test_a_list_of_networks_that_cannot_be_is_refused(self, command: Command, stated: str) -> None:
        Path(settings.HERE).write_text(f"[build]\n{stated}\n")
        assert "build." in refused(command, 3, "build")


class TestBench:
    @pytest.mark.compiles
    def test_unavailable_networks_are_named_and_the_others_measured(self, command: Command, gone: str) -> None:
        options = ["--against", "onnxruntime", "--threads", 1, "--rounds", 1]
        Path("broken.onnx").write_bytes(b"no network")
        code, out, err = command("bench", gone, "broken.onnx", "digits", *options, "--json")
        assert (code, "broken.onnx failed: " in err) == (5, True), err
        said = json.loads(out)
        assert {row["model"] for row in said["rows"]} == {"digits"}
        states = [(each["model"], each["state"]) for each in said["failed"]]
        assert states == [("gone", "unavailable"), ("broken.onnx", "failed")]

    def test_where_nothing_can_be_measured_the_first_error_is_told(self, command: Command, gone: str) -> None:
        assert "cannot get gone.onnx" in refused(command, 9, "bench", gone, "no-such-network")


class TestPush:
    NOWHERE = ("--board", "rpi4", "--host", "board@127.0.0.1:1")

    def test_names_that_mean_nothing_are_each_told(self, command: Command) -> None:
        code, out, err = command("push", "no-such-network", "none.onnx", *self.NOWHERE, "--json")
        assert code == 4
        said = [(each["model"], each["exit_code"]) for each in json.loads(out)]
        assert said == [("no-such-network", 4), ("none.onnx", 5)]
        assert "no-such-network failed: unknown model" in err

    def test_a_failed_release_of_a_model_is_not_hidden(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        where, facts = Address("board"), Facts(machine="aarch64", kernel="6", cores=4)
        files = {f"selftest/output-{number}-edge.bin": 1 << 22 for number in range(4)}
        pushed = Pushed("digits", "20261126T230000Z-0123abcd", "pushed", files, 1 << 24, 12.3, facts)
        results = [(where, "digits", CompileError("wrong " * 20)), (where, "digits", pushed)]
        monkeypatch.setattr("edgedeploy.release.push.push_all", lambda *_, **__: results)
        code, out, err = command("push", "digits", "mobilenet_v1", *self.NOWHERE)
        assert code == 6
        assert [line.split()[-1] for line in out.splitlines()] == ["s", "failed", "12.3"]
        assert "pushed, 4 files" in out
        assert max(map(len, out.splitlines())) < 80
        assert err == f"digits on board failed: {'wrong ' * 20}\n"

    @pytest.mark.parametrize("host", ["pi@no-such-board.invalid", "pi@127.0.0.1:1"])
    def test_a_board_that_does_not_answer_is_named_once_with_what_to_try(self, command: Command, host: str) -> None:
        Path(settings.HERE).write_text(f'[hosts]\nrpi4 = "{host}"\n')
        err = refused(command, 13, "push", "digits", "--board", "rpi4")
        what, *hints = err.partition("error: ")[2].splitlines()
        assert host.removeprefix("pi@") in what
        assert what.endswith("; edgedeploy.toml names this host")
        elsewhere, virtual = "say where the board is: --host USER@ADDRESS", "do without a board: --virtual"
        assert hints[-2:] == [f"  try: {elsewhere}", f"  try: {virtual}"]
        assert len(err.splitlines()) <= 5
        assert refused(command, 13, "push", "digits", "no-such-network", *self.NOWHERE).count("cannot be reached") == 1

    def test_a_name_in_local_may_need_a_package(self) -> None:
        assert "libnss-mdns" in hints_for_name("raspberrypi.local")[0]
        assert hints_for_name("10.0.0.7") == []


def test_a_network_that_needs_a_missing_package_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TfLite, "packages", ("no-such-package",))
    with pytest.raises(EdgedeployError) as caught:
        TfLite().read([tmp_path / "net.tflite"], {})
    assert caught.value.unavailable
    assert caught.value.hints == (INSTALL_BUILD,)
