"""`bench --energy`: what a board's power is read from, and what an inference takes of it."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from conftest import Command
from support.power import EARLIER, RAILS, vcgencmd

from edgedeploy.benchmarking import energy
from edgedeploy.benchmarking.energy import PowerMeter
from edgedeploy.benchmarking.engines.engine import CannotRunError
from edgedeploy.benchmarking.turns import Turn
from edgedeploy.errors import UnsupportedError


def put(root: Path, path: str, content: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A board without any source of power's figures, which is read three times in a moment."""
    for name, value in {"_SAMPLES": 3, "_PAUSE_S": 0.02, "_AFTER_S": 0.02, "_READING_S": 0.2}.items():
        monkeypatch.setattr(energy, name, value)
    put(tmp_path, "proc/uptime", "100.00 90.00\n")
    return tmp_path


def run(script: str) -> str:
    return subprocess.run(["sh", "-eu", "-c", script], capture_output=True, text=True, check=True).stdout


def firmware(root: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    vcgencmd(root / "bin", said)
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")


@pytest.mark.parametrize("said", [RAILS, EARLIER])
def test_the_rails_of_a_pi_5_are_summed(root: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    firmware(root, monkeypatch, said)
    meter = PowerMeter(run, str(root))
    assert (meter.source, meter.idle_watts) == ("rails", pytest.approx(0.1 * 3.3 + 1.5 * 0.8))


def test_a_sensor_in_the_supply_line_is_preferred(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    firmware(root, monkeypatch, RAILS)
    put(root, "sys/class/hwmon/hwmon0/name", "cpu_thermal\n")
    put(root, "sys/class/hwmon/hwmon2/name", "ina219\n")
    put(root, "sys/class/hwmon/hwmon2/power1_input", "4260000\n")
    meter = PowerMeter(run, str(root))
    assert (meter.source, meter.idle_watts) == ("sensor", pytest.approx(4.26))


def test_counters_of_all_packages_count_while_they_grow(root: Path) -> None:
    # A second and 7 and 5 joules between readings; at the third one, a counter begins at zero again.
    for package, name in ((0, "package-0"), (1, "package-1"), (2, "psys")):
        put(root, f"sys/class/powercap/intel-rapl:{package}/name", f"{name}\n")
    counters = [root / f"sys/class/powercap/intel-rapl:{package}/energy_uj" for package in (0, 1, 2)]
    readings = [(100, 20_000_000, 1_000_000), (101, 27_000_000, 6_000_000), (102, 3_000_000, 11_000_000)]

    def board(script: str) -> str:
        texts = []
        for clock, first, second in readings:
            put(root, "proc/uptime", f"{clock}.00 1.00\n")
            for counter, value in zip(counters, (first, second, 9), strict=True):
                counter.write_text(f"{value}\n")
            texts.append(run(script.replace("count=3", "count=1")))
        return texts[0] + "".join(text.partition("\n")[2] for text in texts[1:])

    meter = PowerMeter(board, str(root))
    assert (meter.source, meter.idle_watts) == ("counters", pytest.approx(12.0))


@pytest.mark.parametrize(
    "said", ["", "VDD_CORE_A current(7)=1.5A\n", 'error=2 error_msg="Invalid arguments"\n', "\x00"]
)
def test_a_board_that_does_not_tell_is_said_to(root: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    firmware(root, monkeypatch, said)
    with pytest.raises(UnsupportedError, match="does not say what power it takes") as raised:
        PowerMeter(run, str(root))
    assert "INA219" in str(raised.value.hints)


class Sleeper:
    """Inferences of a length, which may be shorter than they were; meanwhile the board takes more."""

    device = "CPU"

    def __init__(self, sensor: Path, typical: float, actual: Callable[[], float]) -> None:
        self.sensor, self.typical, self.actual = sensor, typical, actual
        self.counts: list[int] = []

    def turn(self, warmup: int, count: int) -> Turn:
        self.counts.append(count)
        self.tell("6000000\n")
        length = self.actual()
        time.sleep(count * length)
        self.tell("2000000\n")
        return Turn([length] * count, None)

    def tell(self, said: str) -> None:
        """As a driver does: at no moment is there nothing to read."""
        put(self.sensor.parent, "next", said).replace(self.sensor)


@pytest.fixture
def sensor(root: Path) -> Path:
    put(root, "sys/class/hwmon/hwmon2/name", "ina226\n")
    return put(root, "sys/class/hwmon/hwmon2/power1_input", "2000000\n")


def test_an_inference_takes_the_power_during_it_for_as_long_as_it_lasts(root: Path, sensor: Path) -> None:
    found = PowerMeter(run, str(root)).energy_of(Sleeper(sensor, 0.01, lambda: 0.01))
    assert (found.joules, found.watts, found.idle_watts) == (pytest.approx(0.06), pytest.approx(6), pytest.approx(2))
    assert not found.estimated


def test_a_turn_that_ends_before_power_is_read_is_repeated_with_more(root: Path, sensor: Path) -> None:
    lengths = count()
    sleeper = Sleeper(sensor, 0.01, lambda: 0.0001 if next(lengths) == 0 else 0.01)
    assert PowerMeter(run, str(root)).energy_of(sleeper).watts == pytest.approx(6)
    assert sleeper.counts[1] == pytest.approx(2 * sleeper.counts[0], abs=1)


def test_an_engine_that_is_always_done_too_early_has_no_energy(root: Path, sensor: Path) -> None:
    before = threading.active_count()
    with pytest.raises(CannotRunError, match="before its power is read"):
        PowerMeter(run, str(root)).energy_of(Sleeper(sensor, 0.01, lambda: 0.0))
    assert threading.active_count() == before


@pytest.mark.compiles
def test_a_machine_without_any_meter_is_told_before_anything_is_measured(command: Command) -> None:
    """Where it has one, energies of all engines are there, and said to be estimates or not."""
    code, out, err = command("bench", "digits", "--against", "onnxruntime", "--rounds", "1", "--energy")
    if code:
        assert (code, "does not say what power it takes" in err) == (12, True)
        assert "  measure " not in err
    else:
        assert "energy mJ" in out
        assert "energy is estimated by" in out or "energy is measured by" in out
