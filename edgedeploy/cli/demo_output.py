"""The output of `edgedeploy demo`: the logs of Tengine's examples, JSON, or a live page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from edgedeploy.cli.console import as_json, print_json, print_json_line, print_lines, stderr
from edgedeploy.errors import EdgedeployError, InputError

if TYPE_CHECKING:
    from edgedeploy.demo.output import Summary
    from edgedeploy.demo.program import DemoSession, Result
    from edgedeploy.demo.tengine_log import LogStyle
    from edgedeploy.live.showing import Seen, Showing
    from edgedeploy.vision.source import Source


class Printer:
    """Prints results of demos as they come; only the objects of single images wait for `finish`."""

    def __init__(self, style: LogStyle, *, several: bool) -> None:
        """Print a log in a style, or JSON; with `several` demos, the objects of single images form one list."""
        self._style, self._several = style, several
        self._objects: list[dict[str, Any]] = []
        self._printed = False
        self._as_lines = False

    def image(self, result: Result) -> None:
        """Print a single image, or one of a folder in Tengine's log."""
        if as_json():
            self._objects.append(result.as_dict())
        else:
            self._block(result.log(self._style))

    def begin(self, session: DemoSession, source: Source) -> None:
        """Print the lines before the images of a sequence."""
        if self._in_frames(source) and not as_json():
            self._block(session.head(source.path))

    def frame(self, result: Result, source: Source) -> None:
        """Print an image of a sequence."""
        if as_json():
            self._as_lines = True
            print_json_line(result.frame_dict())
        elif self._in_frames(source):
            name = f"frame {result.shot.index}" if source.is_film else result.shot.file.name
            print_lines(result.frame_log(name, self._style))
        else:
            self.image(result)

    def end(self, session: DemoSession, source: Source, summary: Summary, *, interrupted: bool) -> None:
        """Print the lines after the images of a sequence."""
        if as_json():
            about = session.as_dict(source.path)
            print_json_line({"summary": {**about, **summary.as_dict(), "interrupted": interrupted}})
        elif self._in_frames(source):
            print_lines([summary.line(), *session.tail()])
        else:
            self._block([summary.line()])

    def failure(self, demo: str, error: EdgedeployError) -> None:
        """Add one of several demos that failed to the JSON; logs leave it out."""
        self._objects.append({"task": demo, **error.to_dict()})

    def finish(self) -> None:
        """Print the JSON of the single images, and of demos that failed."""
        if self._as_lines:
            for each in self._objects:
                print_json_line(each)
        elif as_json():
            print_json(self._objects if self._several else self._objects[0])

    def _in_frames(self, source: Source) -> bool:
        """Whether the images of a sequence share one head; Tengine's examples take one image, and no folders."""
        return source.is_film or self._style != "tengine"

    def _block(self, lines: list[str]) -> None:
        print_lines([*([""] if self._printed else []), *lines])
        self._printed = True


_PORT = 8080
# Images per second of a folder, which has no rate of its own.
_FOLDER_RATE = 1.0


def seen(result: Result, capture_ms: float) -> Seen:
    """A result on a live page, whose image took `capture_ms` to arrive."""
    from edgedeploy.live.showing import Seen
    from edgedeploy.vision.draw import caption

    parts = result.outcome.all_parts
    times = {
        "capture": capture_ms,
        "preparation": parts.preprocess_ms,
        "inference": parts.inference_ms,
        "decoding": parts.postprocess_ms,
    }
    captions = [caption(each) for each in result.outcome.all_detections]
    return Seen(result.shot.index, result.drawn, captions, times)


@dataclass(frozen=True)
class Live:
    """Whether and how a demo is shown in a browser: a record of options (`groups.Commands`)."""

    serve: Annotated[
        bool,
        Option("--serve", help="Show a folder, video or camera with its results on a page for this machine's browser."),
    ] = False
    port: Annotated[
        int | None, Option(metavar="N", min=0, max=65535, help=f"The page's port; default: {_PORT}; 0 takes any.")
    ] = None
    unpaced: Annotated[
        bool, Option("--unpaced", help="Show videos and folders as fast as possible, not at their own rate.")
    ] = False

    def check(self, *, one_demo: bool) -> None:
        """Refuse options that do not go together; `one_demo`: the command runs one demo on images."""
        given = {"--serve": self.serve, "--port": self.port is not None, "--unpaced": self.unpaced}
        named = next((name for name, value in given.items() if value), None)
        if named and not one_demo:
            raise InputError(f"{named} needs one demo on images", hints=["name one; `edgedeploy demo` lists them"])
        if named and not self.serve:
            raise InputError(f"{named} needs --serve")

    @contextmanager
    def page(self, source: Source, title: str) -> Iterator[Showing | None]:
        """Serve the page, with --serve, while the block runs, and tell the user its address."""
        if not self.serve:
            yield None
            return
        from edgedeploy.live.server import serving
        from edgedeploy.live.showing import Showing

        if source.kind == "image":
            raise InputError(
                "--serve needs a folder, a video or a camera",
                why=f"{source.path} is a single image",
                hints=["--save FILE keeps it with the results drawn in"],
            )
        own = source.rate if source.kind == "video" else _FOLDER_RATE if source.kind == "folder" else None
        showing = Showing(rate=None if self.unpaced else own, live=source.kind == "camera")
        with serving(showing, title, _PORT if self.port is None else self.port) as address:
            stderr().print(f"open {address} in a browser; Ctrl-C ends it")
            yield showing
