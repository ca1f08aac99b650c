"""The state of a board while it measures: frequency, temperature, and whether it slowed itself down."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator

from edgedeploy.base.programs import script
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import EdgedeployError, InputError
from edgedeploy.records.schema import Conditions

# Runs a POSIX shell script on the board, and returns its output.
Run = Callable[[str], str]

# Shell's function that sets a policy's governor.
_PUT = """put() {
[ "$(cat "$1/scaling_governor")" = "$2" ] && return
if [ -w "$1/scaling_governor" ]; then echo "$2" >"$1/scaling_governor"
else echo "$2" | sudo -n tee "$1/scaling_governor" >/dev/null; fi
}"""

_SCRIPT = script(__package__, "conditions.sh")

# Bits of Raspberry Pi's firmware, from the documentation of `vcgencmd get_throttled`: the clock is capped (by low
# voltage or by heat), throttled, held at the soft limit of temperature; 16 bits further on, whether that ever
# happened since the board was started.
_SLOWER_NOW = 0b1110
_EVER = 16

_DECIMAL = re.compile(r"-?\d{1,15}(\.\d{1,15})?", re.ASCII)
_HEXADECIMAL = re.compile(r"(0x)?[0-9a-fA-F]{1,15}", re.ASCII)
_GOVERNOR = re.compile(r"[a-z_]{1,32}")
_POLICY = re.compile(r"policy\d{1,5}", re.ASCII)


class Throttling:
    """Reads a board's state, and whether the board slowed itself down since the last reading."""

    def __init__(self, run: Run, root: str = "") -> None:
        self._run, self._root = run, root
        self._ever: int | None = None
        self._count: int | None = None

    def conditions(self) -> Conditions:
        """The state of the board now; `throttled` is of the time since the last reading.

        The first reading is of this moment, if the board reports it: counters only mean something when read again.
        """
        readings = dict(_pairs(self._run(f"root={shlex.quote(self._root)}\n{_SCRIPT}")))
        firmware, count = _number(readings.get("firmware"), 16), _number(readings.get("count"))
        throttled = None
        if firmware is not None:
            ever = firmware >> _EVER & _SLOWER_NOW
            # What happened once stays set: a second time shows only while it lasts.
            throttled = bool(firmware & _SLOWER_NOW) or bool(self._ever is not None and ever & ~self._ever)
            self._ever = ever
        elif count is not None:
            throttled = None if self._count is None else count != self._count
            self._count = count
        # In MHz, from the firmware, the kernel's driver, and the processor, the best source first.
        factors = {"hz": 1e-6, "khz": 1e-3, "mhz": 1}
        frequencies = (_scaled(readings.get(f"frequency_{unit}"), factor) for unit, factor in factors.items())
        return Conditions(
            governor=readings.get("governor"),
            frequency_mhz=next(filter(None, frequencies), None),
            temperature_c=_scaled(readings.get("temperature"), 1e-3),
            throttled=throttled,
        )


def require_governor_name(name: str) -> None:
    """Refuse text that cannot be the name of a governor."""
    if not _GOVERNOR.fullmatch(name):
        raise InputError(f"{name!r} cannot be the name of a governor", hints=["performance"])


@contextlib.contextmanager
def governor(run: Run, name: str, root: str = "", progress: Progress = SILENT) -> Iterator[bool]:
    """Run a board's processors under another governor while the block runs; yields whether they do.

    They get their own governors back when the block ends. It takes root's rights, or a `sudo` that asks for no
    password; without them a note is printed, and nothing is changed. `root` is a prefix of the paths of system files.
    """
    require_governor_name(name)
    folder = shlex.quote(f"{root}/sys/devices/system/cpu/cpufreq")
    present = _pairs(run(f'cd {folder} && for p in policy*; do echo "$p $(cat "$p/scaling_governor")"; done'))
    before = {policy: old for policy, old in present if _POLICY.fullmatch(policy) and _GOVERNOR.fullmatch(old)}
    if not before:
        progress.note("the board has no governor to set: its system does not choose the frequency")
        yield False
        return
    try:
        refused = run(_setting(folder, dict.fromkeys(before, name))).strip()
        if refused:
            progress.note(f"the governor stays {', '.join(sorted(set(before.values())))}: {refused.splitlines()[-1]}")
        yield not refused
    finally:
        try:
            refused = run(_setting(folder, before)).strip()
        except EdgedeployError as error:
            refused = error.cause
        if refused and set(before.values()) != {name}:
            old = ", ".join(sorted(set(before.values())))
            progress.note(f"the board's governor may still be {name}, it was {old}: {refused.splitlines()[-1]}")


def _setting(folder: str, governors: dict[str, str]) -> str:
    """A script that sets governors, and prints nothing unless it cannot."""
    calls = "\n".join(f"put {policy} {name} 2>&1" for policy, name in governors.items())
    return f"cd {folder} || exit 0\n{_PUT}\n{calls}\nexit 0"


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of lines; names without a value are left out."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip():
            yield name, value.strip()


def _scaled(text: str | None, factor: float) -> float | None:
    return round(float(text) * factor, 3) if text and _DECIMAL.fullmatch(text) else None


def _number(text: str | None, base: int = 10) -> int | None:
    digits = _HEXADECIMAL if base == 16 else _DECIMAL
    return int(text, base) if text and digits.fullmatch(text) and "." not in text else None
