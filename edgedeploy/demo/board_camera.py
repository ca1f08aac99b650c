"""A demo on a board's own camera: the board's agent runs it, and sends images with results (docs/agent.md)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import cv2
from pydantic import ValidationError

from edgedeploy.base.closing import Closing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.building import prepare
from edgedeploy.demo.pipeline import Network, Outcome, Parts
from edgedeploy.demo.program import DemoSession, Program, Result
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import EdgedeployError, InputError, ReleaseError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.release.lock import locked
from edgedeploy.release.push import bring, release_for
from edgedeploy.remote.address import addresses
from edgedeploy.remote.connection import Connection, close_channel
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.failures import agent_ended
from edgedeploy.remote.login import BROKEN
from edgedeploy.runtime.opening import Place, Runner
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import decoded
from edgedeploy.vision.results import Detection
from edgedeploy.vision.source import Shot, Source

ANY_CAMERA = "auto"  # the board chooses one

_PROTOCOL = 1
_MOST_LINE = 65536
_MOST_BYTES = 1 << 26  # more than any camera's JPEG
# An emulated board takes minutes to load a large network, and for one inference.
_FIRST_S, _NEXT_S = 600, 300
_RATE = 25.0  # images per second of saved videos

_DEMO = """
cd && cd "$1" && camera=$2 && shift 2 && exec ./agent demo ./ --stream "--camera=$camera" "$@"
"""


@dataclass(frozen=True)
class SeenShot(Shot):
    """One image of a board's camera with the board's results and times; `taken_ms` is that of its camera."""

    detections: list[Detection]
    parts: Parts
    taken_ms: float

    def capture_ms(self, waited_ms: float) -> float:
        """The board's own time: waiting here includes inference."""
        return self.taken_ms


class AgentDemo(Closing):
    """`agent demo --stream` on a board; a context manager."""

    def __init__(self, connection: Connection, folder: str, camera: str, threads: int | None = None) -> None:
        """Start it in the folder of a release, relative to the home folder; `camera` is as for `agent demo`."""
        self._connection = connection
        options = ["--threads", str(threads)] if threads else []
        self._channel = connection.open(_DEMO, folder, camera, *options)
        self._channel.settimeout(_FIRST_S)
        self._stream = self._channel.makefile("rb")
        hello, _ = self._message()
        if hello.get("protocol") != _PROTOCOL:
            raise ReleaseError(
                f"the agent on {connection.address} has another protocol",
                why=f"it is {hello.get('protocol')}, {_PROTOCOL} is understood here",
                hints=["push the package again: that brings the agent that belongs to it"],
            )
        self.camera, self.threads = str(hello.get("source")), int(hello.get("threads", 1))
        self._channel.settimeout(_NEXT_S)

    def close(self) -> None:
        """End it: it stops when its output is closed."""
        with contextlib.suppress(*BROKEN):
            self._channel.shutdown_write()
        close_channel(self._channel)

    def shots(self) -> Iterator[SeenShot]:
        """The images as they come."""
        while True:
            message, content = self._message()
            if "summary" in message:  # somebody ended it on the board
                return
            yield self._shot(message, content)

    def _shot(self, message: dict[str, Any], content: bytes) -> SeenShot:
        try:
            image = decoded(content)
            if image is None or image.shape[:2] != (message["height"], message["width"]):
                raise self._strange("an image does not have the size that was announced")
            detections = [Detection.model_validate(each) for each in message["results"]]
            times = {name: float(message["times"][name]) for name in (*Parts().as_dict(), "capture_ms")}
            taken_ms = times.pop("capture_ms")
            return SeenShot(int(message["frame"]), Path(self.camera), image, detections, Parts(**times), taken_ms)
        except (KeyError, TypeError, ValueError, ValidationError, cv2.error) as error:
            raise self._strange(f"it sends invalid results: {error}") from error

    def _message(self) -> tuple[dict[str, Any], bytes]:
        try:
            line = self._stream.readline(_MOST_LINE)
            if not line.endswith(b"\n"):
                raise self._strange("a line is too long") if len(line) == _MOST_LINE else self._ended()
            message = json.loads(line)
            count = int(message.get("bytes", 0))
            if not 0 <= count <= _MOST_BYTES:
                raise self._strange(f"it announces {count} bytes")
            content = bytes(self._stream.read(count)) if count else b""
        except TimeoutError as error:
            raise self._strange("it sent nothing for minutes") from error
        except (AttributeError, ValueError, RecursionError) as error:
            raise self._strange(f"it said {line[:80]!r}") from error
        if len(content) != count:
            raise self._ended()
        return message, content

    def _strange(self, why: str) -> ReleaseError:
        self.close()
        return ReleaseError(f"the agent on {self._connection.address} does not answer as it should", why=why)

    def _ended(self) -> EdgedeployError:
        return agent_ended(self._connection, self._channel, f"the demo on {self._connection.address} ended")


@dataclass(frozen=True)
class BoardSession(DemoSession):
    """A demo that looks on the board."""

    def infer(self, shot: Shot, *, repeat: int = 1, tracker: object = None) -> Result:
        """The board's result for one of its images."""
        assert isinstance(shot, SeenShot)
        [network] = self.networks
        assert isinstance(network, Network)
        height, width = shot.image.shape[:2]
        frame = Frame((height, width), (height, width), (1.0, 1.0))
        timing = Timing((shot.parts.inference_ms,))
        return Result(self, shot, Outcome(shot.detections, timing, shot.parts, network, frame))


@contextmanager
def board_camera(
    program: Program,
    place: Place,
    camera: str,
    *,
    threads: int | None = None,
    options: ImportOptions = AS_THE_FILE_SAYS,
    progress: Progress = SILENT,
) -> Iterator[tuple[DemoSession, Source]]:
    """A demo on a board's own camera: the network is brought to the board as a trial, and runs there.

    `camera` is a number, a device, `rpicam`, or the address of a stream; with `auto` the board chooses.
    """
    [part, *following] = program.parts
    if following or part.sized_input(options):
        raise InputError(
            f"the demo {program.name} does not support a board's camera",
            why="the board's agent runs one network of one size by itself, and this demo has more",
            hints=["--image 0 shows it this machine's camera, and has the board run the networks"],
        )
    use = find_use(part.model)
    if use is None or use.demo != program.name:
        use = find_use(part.model, program.name)
    shapes = part.shapes(options)
    prepared = prepare(part.model, place.board, input_shapes=shapes, options=options, use=use, progress=progress)
    manifest = prepared.manifest
    part = part.fitted(manifest)
    [address] = addresses(place.board, place.hosts, virtual=place.virtual, progress=progress)
    with Connection(address, strict=place.strict, progress=progress) as connection:
        release = release_for(prepared.package_path, place.board.profile, progress)
        with locked(connection):
            trial = bring(connection, release, temporarily=False, progress=progress)
        with AgentDemo(connection, f"{BASE}/{trial.folder}", "" if camera == ANY_CAMERA else camera, threads) as demo:
            runner = cast(Runner, demo)  # only its `threads` are used: the board's agent runs the network
            network = part.network(manifest, prepared.source.file, runner)
            machine = trial.facts.line()
            session = BoardSession(program.name, [network], place.board.name, machine, manifest.weights)
            yield session, Source("camera", Path(demo.camera), demo.shots(), rate=_RATE)
