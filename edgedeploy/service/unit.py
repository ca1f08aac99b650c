"""The systemd unit of a network on a board: its options, and its file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgedeploy.errors import InputError
from edgedeploy.remote.facts import BASE

# Waits between restarts in seconds: the first and, since systemd 254 can let them grow, the longest.
_FIRST_S, _LAST_S = 2, 60
_STEPS_SINCE = 254
# Characters that a unit can have without quotes.
_CAMERA = r"auto|\d{1,3}|/dev/[A-Za-z0-9._/-]+|rpicam(:\d)?|(rtsp|https?)://[A-Za-z0-9._~:/?#\[\]@!&()*+,=%-]+"
# An inference that takes longer counts as hanging.
WATCHDOG_S = 30


@dataclass(frozen=True)
class Choices:
    """Options of a service.

    Attributes:
        memory_max: bytes, with K, M or G, or a share such as `50%`; None for no limit.
        cpu_quota: processor time as a share of one processor, such as `150%`; None for no limit.
        threads: of the network; None for the package's default.
        watchdog_s: the time limit of one inference, in seconds.
        camera: a camera of the board, as for `agent demo --camera`.
    """

    memory_max: str | None = None
    cpu_quota: str | None = None
    threads: int | None = None
    watchdog_s: int = WATCHDOG_S
    camera: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that systemd does not understand."""
        if self.memory_max and not re.fullmatch(r"[1-9]\d{0,14}[KMG]?|[1-9]\d?%|100%", self.memory_max):
            raise InputError(f"invalid memory limit {self.memory_max!r}", hints=["write it as 256M, 1G or 50%"])
        if self.cpu_quota and not re.fullmatch(r"[1-9]\d{0,4}%", self.cpu_quota):
            raise InputError(f"invalid CPU quota {self.cpu_quota!r}", hints=["write it as 80%; two are 200%"])
        if self.camera and not re.fullmatch(_CAMERA, self.camera):
            raise InputError(
                f"invalid camera of a service: {self.camera!r}",
                hints=["write it as auto, 0, /dev/video0, rpicam or rtsp://HOST/PATH, without quotes and blanks"],
            )


@dataclass(frozen=True)
class Place:
    """The board of a unit.

    Attributes:
        home: the home folder of the user who owns the releases.
        user: that user, for a system unit; None for a user unit.
        systemd: its version.
        has_device: networks run on a device with files in /dev.
    """

    home: str
    user: str | None
    systemd: int
    has_device: bool = False

    @property
    def backs_off(self) -> bool:
        """Whether systemd can let the waits between restarts grow."""
        return self.systemd >= _STEPS_SINCE


def unit_name(model: str) -> str:
    """The unit's name without `.service`."""
    return f"edgedeploy-{model}"


def socket_path(model: str, place: Place) -> str:
    """The service's socket, for shells on the board."""
    return f"{'/run' if place.user else '$XDG_RUNTIME_DIR'}/{unit_name(model)}/socket"


def unit_text(model: str, choices: Choices, place: Place) -> str:
    """The unit's file."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if not re.fullmatch(r"/[A-Za-z0-9._/@+-]+", place.home):
        raise InputError(
            f"the home folder {place.home!r} cannot be written into a unit",
            why="its name has other characters than letters, digits and ._/@+-",
        )
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template("unit.service").render(
        model=model,
        name=unit_name(model),
        base=BASE,
        home=place.home,
        user=place.user,
        backs_off=place.backs_off,
        has_device=place.has_device,
        first_s=_FIRST_S if place.backs_off else 5,
        last_s=_LAST_S,
        memory_max=choices.memory_max,
        cpu_quota=choices.cpu_quota,
        threads=choices.threads,
        watchdog_s=choices.watchdog_s,
        camera=choices.camera,
    )
