"""What a board says of its state, read from trees of files like those of real boards, by a real shell."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Notebook, executable, put

from edgedeploy.errors import BoardConnectionError, InputError
from edgedeploy.records.schema import Conditions, default_folder
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.tuning.conditions import Run, Throttling, governor
from edgedeploy.tuning.tuning import Boards

CPU = "sys/devices/system/cpu"
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"


def output_of(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def run(shell: list[str]) -> Run:
    return lambda script: output_of([*shell, "-c", script])


@pytest.fixture
def notes() -> Notebook:
    return Notebook()


@pytest.fixture
def pi(tmp_path: Path) -> Path:
    """A Raspberry Pi 4 with two policies of frequency, that once had too little power."""
    root = tmp_path / "a pi's"
    put(root / f"{CPU}/cpu0/cpufreq/scaling_governor", "ondemand\n")
    put(root / f"{CPU}/cpu0/cpufreq/scaling_cur_freq", "1500000\n")
    put(root / f"{CPU}/cpufreq/policy0/scaling_governor", "ondemand\n")
    put(root / f"{CPU}/cpufreq/policy4/scaling_governor", "powersave\n")
    put(root / "sys/class/thermal/thermal_zone0/temp", "47712\n")
    put(root / "sys/class/thermal/thermal_zone1/temp", "8123\n")
    put(root / FIRMWARE, "10000\n")
    return root


def governors(root: Path) -> list[str]:
    return [path.read_text().strip() for path in sorted(root.glob(f"{CPU}/cpufreq/policy*/scaling_governor"))]


def test_a_pi_tells_governor_frequency_and_its_hottest_zone(pi: Path, run: Run) -> None:
    found = Throttling(run, str(pi)).conditions()
    assert found == Conditions(governor="ondemand", frequency_mhz=1500, temperature_c=47.712, throttled=False)


@pytest.mark.parametrize(
    ("asked", "said", "field", "expected"),
    [
        ("measure_clock arm", "frequency(48)=600117184", "frequency_mhz", 600.117),  # better than the kernel knows it
        ("get_throttled", "throttled=0x4", "throttled", True),
    ],
)
def test_the_firmware_is_asked_through_its_program(
    pi: Path, run: Run, monkeypatch: pytest.MonkeyPatch, asked: str, said: str, field: str, expected: float
) -> None:
    (pi / FIRMWARE).unlink()
    tool = executable(pi / "bin/vcgencmd", f'[ "$*" = "{asked}" ] && echo "{said}"')
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert getattr(Throttling(run, str(pi)).conditions(), field) == pytest.approx(expected)


def test_without_a_driver_the_processors_own_word_counts_if_it_tells_anything(tmp_path: Path, run: Run) -> None:
    assert Throttling(run, str(tmp_path)).conditions() == Conditions()
    put(tmp_path / "proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2499.998\n\nprocessor\t: 1\ncpu MHz\t\t: 800.0\n")
    assert Throttling(run, str(tmp_path)).conditions().frequency_mhz == pytest.approx(2499.998)


@pytest.mark.parametrize(
    ("bits", "throttled"),
    [
        ("0", False),
        ("1", False),  # low voltage alone does not slow a board down
        ("2", True),  # the clock is capped
        ("4", True),  # throttled
        ("8", True),  # the soft limit of temperature
        ("e0000", False),  # all of that once, and not now
        ("0xe0006", True),
    ],
)
def test_bits_of_the_firmware_that_mean_slower(pi: Path, run: Run, bits: str, throttled: bool) -> None:
    put(pi / FIRMWARE, f"{bits}\n")
    assert Throttling(run, str(pi)).conditions().throttled == throttled


def test_what_happened_between_two_readings_is_seen_and_what_happened_before_is_not(pi: Path, run: Run) -> None:
    throttling = Throttling(run, str(pi))
    seen = []
    # At first it had low voltage once; then it is throttled for a moment between readings; then nothing happens.
    for bits in ("10000", "50000", "50000", "d0000", "d0000"):
        put(pi / FIRMWARE, bits)
        seen.append(throttling.conditions().throttled)
    assert seen == [False, True, False, True, False]


def test_counters_of_x86_tell_from_the_second_reading_on(tmp_path: Path, run: Run) -> None:
    put(tmp_path / f"{CPU}/cpu0/thermal_throttle/core_throttle_count", "7\n")
    put(tmp_path / f"{CPU}/cpu0/thermal_throttle/package_throttle_count", "100\n")
    throttling = Throttling(run, str(tmp_path))
    assert throttling.conditions().throttled is None
    assert throttling.conditions().throttled is False
    put(tmp_path / f"{CPU}/cpu1/thermal_throttle/core_throttle_count", "1\n")
    assert throttling.conditions().throttled is True
    assert throttling.conditions().throttled is False


@pytest.mark.parametrize("nonsense", ["", "nan", "inf", "1e+9", "-", "0x", "x" * 100_000, "9" * 100_000, "\x00\xff"])
def test_nonsense_is_nothing_known(pi: Path, run: Run, nonsense: str) -> None:
    for name in (FIRMWARE, f"{CPU}/cpu0/cpufreq/scaling_cur_freq", "sys/class/thermal/thermal_zone0/temp"):
        put(pi / name, nonsense)
    (pi / "sys/class/thermal/thermal_zone1/temp").unlink()
    found = Throttling(run, str(pi)).conditions()
    assert (found.frequency_mhz, found.temperature_c, found.throttled) == (None, None, None)


def test_a_governor_is_set_and_each_policy_gets_its_own_back_even_after_ctrl_c(
    pi: Path, run: Run, notes: Notebook
) -> None:
    with governor(run, "performance", str(pi), notes) as done:
        assert done
        assert governors(pi) == ["performance", "performance"]
    assert governors(pi) == ["ondemand", "powersave"]
    assert not notes.lines
    with pytest.raises(KeyboardInterrupt), governor(run, "performance", str(pi)):
        raise KeyboardInterrupt
    assert governors(pi) == ["ondemand", "powersave"]


def test_a_board_without_governors_says_so(tmp_path: Path, run: Run, notes: Notebook) -> None:
    with governor(run, "performance", str(tmp_path), notes) as done:
        assert not done
    assert "no governor" in notes.lines[0]


@pytest.fixture
def mere_user(pi: Path) -> Iterator[Run]:
    """Runs scripts as a user who may not write to the tree, with a `sudo` that wants a password."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    tool = executable(pi / "bin/sudo", "echo 'sudo: a password is required' >&2\nexit 1")
    command = ["setpriv", "--reuid", "65534", "--clear-groups", "env", f"PATH={tool.parent}:{os.environ['PATH']}"]
    folders = list(pi.parents)[:-1]
    modes = {folder: folder.stat().st_mode for folder in folders}
    for folder in folders:
        folder.chmod(modes[folder] | 0o011)
    yield lambda script: output_of([*command, "sh", "-c", script])
    for folder in folders:
        folder.chmod(modes[folder])


def test_without_rights_nothing_changes_and_a_note_says_why(pi: Path, mere_user: Run, notes: Notebook) -> None:
    with governor(mere_user, "performance", str(pi), notes) as done:
        assert not done
        assert governors(pi) == ["ondemand", "powersave"]
    assert len(notes.lines) == 1
    assert notes.lines[0].startswith("the governor stays ondemand, powersave: ")
    assert "a password is required" in notes.lines[0]


def test_a_board_that_is_gone_by_the_end_is_no_second_error(pi: Path, run: Run, notes: Notebook) -> None:
    scripts: list[str] = []

    def at_first(script: str) -> str:
        scripts.append(script)
        if len(scripts) > 2:  # after asking and setting
            raise BoardConnectionError("the connection broke")
        return run(script)

    with pytest.raises(ZeroDivisionError), governor(at_first, "performance", str(pi), notes):
        raise ZeroDivisionError
    assert "may still be performance, it was ondemand, powersave: the connection broke" in notes.lines[0]


@pytest.mark.parametrize("name", ["", "perform ance", "x; reboot", "$(reboot)", "Performance", "a" * 100])
def test_a_name_that_no_governor_has_is_refused(pi: Path, run: Run, name: str) -> None:
    with pytest.raises(InputError), governor(run, name, str(pi)):
        pass


def test_a_governor_that_comes_out_of_a_file_is_never_run(pi: Path, run: Run, tmp_path: Path) -> None:
    put(pi / f"{CPU}/cpufreq/policy0/scaling_governor", f"$(touch {tmp_path}/run)\n")
    with governor(run, "performance", str(pi)):
        pass
    assert not (tmp_path / "run").exists()
    assert governors(pi)[1] == "powersave"


@pytest.mark.parametrize(
    ("where", "hosts", "folder"),
    [
        ({}, [], "rpi4"),
        ({"virtual": True}, [], "rpi4-virtual"),
        ({}, ["pi@10.0.0.1"], "rpi4"),
        ({}, ["pi@10.0.0.1", "virtual:rpi4"], "rpi4-virtual"),
    ],
)
def test_records_of_virtual_boards_lie_apart(where: dict[str, bool], hosts: list[str], folder: str) -> None:
    assert Boards(Place(resolve("rpi4"), **where), hosts).records_folder() == default_folder(folder)


def test_a_virtual_board_of_the_settings_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("edgedeploy.toml").write_text('[hosts]\nrpi4 = "virtual:other"\n')
    assert Boards(Place(resolve("rpi4"))).records_folder() == default_folder("rpi4-virtual")
