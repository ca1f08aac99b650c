"""Networks as systemd services of a board: the unit's file, and the steps of `service.sh`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edgedeploy.base.programs import script
from edgedeploy.base.text import fill_template
from edgedeploy.errors import InputError, ServiceError
from edgedeploy.remote.connection import Completed
from edgedeploy.remote.facts import BASE

# As `Connection.run`.
Run = Callable[..., Completed]

# Waits between restarts in seconds: the first and, since systemd 254 can let them grow, the longest.
_FIRST_S, _LAST_S = 2, 60
_STEPS_SINCE = 254
# Characters that a unit can have without quotes.
_CAMERA = r"auto|\d{1,3}|/dev/[A-Za-z0-9._/-]+|rpicam(:\d)?|(rtsp|https?)://[A-Za-z0-9._~:/?#\[\]@!&()*+,=%-]+"
# An inference that takes longer counts as hanging.
WATCHDOG_S = 30

# The time limit to start or stop a service, in seconds.
_START_S = 180

# Exit codes of `service.sh`.
_NO_RELEASE, _OLD_AGENT, _NO_SYSTEMD, _NO_MANAGER, _NO_ROOT = range(61, 66)

# Prints a log: the base folder, the model, the number of lines, and whether to follow it, if not empty.
LOGS = script(__package__, "logs.sh")


@dataclass(frozen=True)
class Choices:
    """Options of a service; None for no limit, and for the package's threads."""

    memory_max: str | None = None  # bytes, with K, M or G, or a share such as `50%`
    cpu_quota: str | None = None  # processor time as a share of one processor, such as `150%`
    threads: int | None = None
    watchdog_s: int = WATCHDOG_S  # the time limit of one inference, in seconds
    camera: str | None = None  # a camera of the board, as for `agent demo --camera`

    def __post_init__(self) -> None:
        if self.memory_max and not re.fullmatch(r"[1-9]\d{0,14}[KMG]?|[1-9]\d?%|100%", self.memory_max):
            raise InputError(f"invalid memory limit {self.memory_max!r}", hints=["write it as 256M, 1G or 50%"])
        if self.cpu_quota and not re.fullmatch(r"[1-9]\d{0,4}%", self.cpu_quota):
            raise InputError(f"invalid CPU quota {self.cpu_quota!r}", hints=["write it as 80%; two are 200%"])
        if self.camera and not re.fullmatch(_CAMERA, self.camera):
            raise InputError(
                f"invalid camera of a service: {self.camera!r}",
                hints=["write it as auto, 0, /dev/video0, rpicam or rtsp://HOST/PATH, without quotes and blanks"],
            )


def unit_name(model: str) -> str:
    """The unit's name without `.service`."""
    return f"edgedeploy-{model}"


def unit_text(
    model: str, choices: Choices, home: str, user: str | None, systemd: int, *, has_device: bool = False
) -> str:
    """The unit's file for releases in a user's home folder, and a version of systemd.

    The user is named in a system unit alone. `has_device` says that networks run on a device with files in /dev.
    """
    if not re.fullmatch(r"/[A-Za-z0-9._/@+-]+", home):
        raise InputError(
            f"the home folder {home!r} cannot be written into a unit",
            why="its name has other characters than letters, digits and ._/@+-",
        )
    return fill_template(
        __package__,
        "unit.service",
        model=model,
        name=unit_name(model),
        base=BASE,
        home=home,
        user=user,
        has_device=has_device,
        backs_off=systemd >= _STEPS_SINCE,
        first_s=_FIRST_S if systemd >= _STEPS_SINCE else 5,
        last_s=_LAST_S,
        **asdict(choices),
    )


@dataclass(frozen=True)
class Installed:
    """A service that was installed and runs."""

    unit: str
    socket: str  # its path for shells on the board
    lingers: bool  # it starts with the board, and not only when its user logs in
    backs_off: bool  # the waits between restarts grow while it fails


@dataclass(frozen=True)
class Service:
    """The service of a model on the board `where`, for the user who logs in or for the system, through sudo."""

    run: Run
    model: str
    where: str
    as_system: bool = False

    def install(self, choices: Choices, *, has_device: bool = False) -> Installed:
        """Write the unit of a model with a release in use, enable it, and start or restart it."""
        asked = self._step("ask")
        if asked.code != 0:
            raise self._refused(asked)
        home, user, version = asked.text.splitlines()
        found = re.match(r"systemd (\d+)", version)
        systemd, owner = int(found[1]) if found else 0, user if self.as_system else None
        name, text = unit_name(self.model), unit_text(self.model, choices, home, owner, systemd, has_device=has_device)
        done = self._step("install", choices.camera or "", content=[text.encode()], timeout_s=_START_S)
        if done.code != 0:
            reason = done.messages.removeprefix("agent: ") or f"systemd ended it with code {done.code}"
            raise ServiceError(
                f"the service {name} does not start on {self.where}",
                why=f"{reason}; the board is unchanged",
                hints=[f"on the board: journalctl --{'unit' if self.as_system else 'user-unit'} {name}"],
            )
        lingers = "no-linger" not in done.text.split()
        socket = f"{'/run' if self.as_system else '$XDG_RUNTIME_DIR'}/{name}/socket"
        return Installed(f"{name}.service", socket, lingers, systemd >= _STEPS_SINCE)

    def control(self, verb: Literal["start", "stop", "uninstall"]) -> None:
        """Start or stop it; or stop it, and remove its unit and its log, but no releases."""
        self._done("remove" if verb == "uninstall" else verb, verb, timeout_s=_START_S)

    def status(self) -> dict[str, Any]:
        """systemd's `state`, `result`, `restarts`, `pid`, `memory_bytes` and `enabled`, and the `release` in use."""
        *lines, release = self._done("query", "status").text.splitlines()
        properties: Mapping[str, str] = dict(line.split("=", 1) for line in lines if "=" in line)
        return {
            "unit": f"{unit_name(self.model)}.service",
            "state": f"{properties.get('ActiveState', 'unknown')} ({properties.get('SubState', 'unknown')})",
            "active": properties.get("ActiveState") == "active",
            "result": properties.get("Result"),
            "restarts": _number(properties.get("NRestarts", "")),
            "pid": _number(properties.get("MainPID", "")) or None,
            "memory_bytes": _number(properties.get("MemoryCurrent", "")),
            "enabled": properties.get("UnitFileState") == "enabled",
            "release": release or None,
        }

    def _step(self, step: str, *more: str, **options: Any) -> Completed:
        whose = "system" if self.as_system else "user"
        return self.run(script(__package__, "service.sh"), step, whose, BASE, self.model, *more, **options)

    def _done(self, what: str, step: str, **options: Any) -> Completed:
        """The result of a step of an installed service, which has to succeed."""
        done, name = self._step(step, **options), unit_name(self.model)
        if done.code == _NO_RELEASE:
            raise ServiceError(
                f"{self.where} has no service {name}",
                hints=[
                    f"`edgedeploy service install {self.model}`, for the same board",
                    "a system service needs --system",
                ],
            )
        if done.code != 0:
            raise ServiceError(f"{self.where} could not {what} the service {name}", why=done.messages or None)
        return done

    def _refused(self, asked: Completed) -> ServiceError:
        push, said = [f"edgedeploy push {self.model}"], asked.messages
        reasons: dict[int, tuple[str | None, list[str]]] = {
            _NO_RELEASE: ("no release of it is in use there", push),
            _OLD_AGENT: ("the agent of the release in use is older than services", push),
            _NO_SYSTEMD: ("it has no systemd", ["start `agent service` there by other means"]),
            _NO_MANAGER: (f"the user has no systemd: {said}", ["log in there once with `ssh`, or use --system"]),
            _NO_ROOT: (said or None, ["allow the user sudo without a password there", "leave out --system"]),
        }
        why, hints = reasons.get(asked.code, (said or f"its shell ended with code {asked.code}", []))
        return ServiceError(f"{self.where} cannot have a service of {self.model}", why=why, hints=hints)


def _number(text: str) -> int | None:
    """A number from systemd, whose unknown numbers are 2^64 - 1 or a word."""
    return int(text) if text.isdigit() and int(text) < 2**63 else None
