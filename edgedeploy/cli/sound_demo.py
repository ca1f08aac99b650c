"""`edgedeploy demo` with demos on sounds: a WAV file or a microphone, with a score for each frame and detections."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgedeploy.cli.console import as_json, print_json_line, print_lines, until_interrupted
from edgedeploy.errors import InputError
from edgedeploy.version import __version__

if TYPE_CHECKING:
    from edgedeploy.audio.program import Heard, SoundSession
    from edgedeploy.base.progress import Progress
    from edgedeploy.runtime.opening import Place


@dataclass(frozen=True)
class Listening:
    """What demos on sounds listen to: a record of options (`groups.Commands`)."""

    wav: Annotated[Path | None, Option(metavar="FILE", help="For demos on sounds: listen to this WAV file.")] = None
    microphone: Annotated[bool, Option("--microphone", help="For demos on sounds: listen to the microphone.")] = False
    threshold: Annotated[
        float | None, Option(min=0, max=1, help="For demos on sounds: the least score of a detection.")
    ] = None


def is_sound_demo(name: str) -> bool:
    """Whether a name or a file is that of a demo on sounds."""
    from edgedeploy.audio.spec import SOUND_DEMOS

    if name.endswith((".yaml", ".yml")):
        return Path(name).resolve().parent.name == Path(SOUND_DEMOS.folder).name
    return name in SOUND_DEMOS.names()


def sound_demo(
    name: str,
    listening: Listening,
    place: Place,
    *,
    model: str | None,
    frames: int | None,
    progress: Progress,
    **opening: Any,  # further arguments of `SoundProgram.opened`
) -> bool:
    """Listen to the end, for a number of frames, or until Ctrl-C; returns whether Ctrl-C came."""
    from edgedeploy.audio.program import SoundProgram
    from edgedeploy.audio.sources import microphone, read_wav

    if listening.wav and listening.microphone:
        raise InputError("--wav does not go with --microphone")
    program = SoundProgram.of(name, model, listening.threshold)
    rate = program.demo.rate
    file = None if listening.microphone else listening.wav or program.sound(progress)
    with (
        nullcontext(read_wav(file, rate)) if file else microphone(rate) as blocks,
        program.opened(place, progress=progress, **opening) as session,
    ):
        printer = _Printer(session, str(file or "microphone"))
        with until_interrupted() as interrupted:
            for heard in islice(session.listen(blocks, is_file=not listening.microphone), frames):
                printer.frame(heard)
                if interrupted():
                    break
            printer.summary(interrupted=interrupted())
            return interrupted()


class _Printer:
    """Prints what is heard: `TIME SCORE` for each frame, `TIME SCORE LABEL begin|end` for what is detected; or JSON."""

    def __init__(self, session: SoundSession, where: str) -> None:
        self._session, self._where = session, where
        self._began = perf_counter()
        self._frames = self._detections = 0
        self._inference_ms = 0.0
        if not as_json():
            models = [f"model : {stage.model}" for stage in session.demo.stages]
            print_lines([f"edgedeploy {__version__}", *models, f"sound : {where}", ""])

    def frame(self, heard: Heard) -> None:
        """Print one frame, and the events of detections in it."""
        label, rate = self._session.demo.detect.label, self._session.demo.rate
        self._frames += 1
        self._inference_ms += heard.inference_ms
        self._detections += sum(event.kind == "begin" for event in heard.events)
        if as_json():
            print_json_line({"time": heard.sample / rate, "score": heard.score})
            for event in heard.events:
                about = {"time": event.sample / rate, "score": event.score}
                print_json_line({"event": event.kind, "label": label, **about})
            return
        lines = [f"{heard.sample / rate:.3f} {heard.score:.4f}"]
        lines += [f"{event.sample / rate:.3f} {event.score:.4f} {label} {event.kind}" for event in heard.events]
        print_lines(lines)

    def summary(self, *, interrupted: bool) -> None:
        session, taken_s = self._session, perf_counter() - self._began
        sound_s = self._frames * session.demo.frame / session.demo.rate
        mean_ms = self._inference_ms / max(1, self._frames)
        if as_json():
            about: dict[str, Any] = {
                "task": session.name,
                "models": [stage.model for stage in session.demo.stages],
                "weights": "random" if session.random else "file",
                "board": session.board,
                **({"machine": session.machine} if session.machine else {}),
                "sound": self._where,
                "frames": self._frames,
                "detections": self._detections,
                "sound_s": sound_s,
                "seconds": taken_s,
                "inference_ms": mean_ms,
                "interrupted": interrupted,
            }
            print_json_line({"summary": about})
            return
        lines = [
            "",
            f"{self._detections} x {session.demo.detect.label} in {sound_s:.2f} s of sound ({self._frames} frames), "
            f"heard in {taken_s:.2f} s; mean inference of a frame {mean_ms:.2f} ms",
        ]
        lines += ["weights : random, seeded: what it hears means nothing"] if session.random else []
        print_lines([*lines, *([f"board : {session.machine}"] if session.machine else [])])
