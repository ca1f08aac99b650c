"""The unit of systemd that keeps a network running on a board: what can be chosen, and its file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgedeploy.errors import InputError
from edgedeploy.remote.facts import BASE

# Between two starts, in seconds: the first wait, and where systemd can have it grow (since 254), the longest.
_FIRST_S, _LAST_S = 2, 60
_STEPS_SINCE = 254
# What a line of a unit holds without quotes.
_CAMERA = r"auto|\d{1,3}|/dev/[A-Za-z0-9._/-]+|rpicam(:\d)?|(rtsp|https?)://[A-Za-z0-9._~:/?#\[\]@!&()*+,=%-]+"
# An inference that takes longer than this is taken for one that hangs.
WATCHDOG_S = 30


@dataclass(frozen=True)
class Choices:
    """What a service does, and what it may take of its board.

    Attributes:
        memory_max: bytes, with K, M or G, or a share as `50%`; None: no limit.
        cpu_quota: processor time as a share of one processor, such as `150%`; None: no limit.
        threads: of the network; None: as the package says.
        watchdog_s: how long one inference may take, in seconds.
        camera: a camera of the board that it looks at, as `agent demo --camera` takes it; None: none.
    """

    memory_max: str | None = None
    cpu_quota: str | None = None
    threads: int | None = None
    watchdog_s: int = WATCHDOG_S
    camera: str | None = None

    def __post_init__(self) -> None:
        """Check what was given."""
        if self.memory_max and not re.fullmatch(r"[1-9]\d{0,14}[KMG]?|[1-9]\d?%|100%", self.memory_max):
            raise InputError(f"{self.memory_max!r} is no amount of memory", hints=["write it as 256M, 1G or 50%"])
        if self.cpu_quota and not re.fullmatch(r"[1-9]\d{0,4}%", self.cpu_quota):
            raise InputError(f"{self.cpu_quota!r} is no share of a processor", hints=["write it as 80%; two are 200%"])
        if self.camera and not re.fullmatch(_CAMERA, self.camera):
            raise InputError(
                f"{self.camera!r} is no camera of a service",
                hints=["write it as auto, 0, /dev/video0, rpicam or rtsp://HOST/PATH, without quotes and blanks"],
            )


@dataclass(frozen=True)
class Place:
    """What the unit has to know of its board.

    Attributes:
        home: the home folder of the user whose releases are run.
        user: who that is, for a unit of the system; None for one of the user.
        systemd: its version.
        has_device: whether networks run on a device, whose files lie in /dev.
    """

    home: str
    user: str | None
    systemd: int
    has_device: bool = False

    @property
    def backs_off(self) -> bool:
        """Whether systemd can have the waits between starts grow."""
        return self.systemd >= _STEPS_SINCE


def unit_name(model: str) -> str:
    """The unit's name without `.service`."""
    return f"edgedeploy-{model}"


def socket_path(model: str, place: Place) -> str:
    """Where clients find the service, as shells of the board write it."""
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
