"""The live page of `edgedeploy demo`: its options, and showing results on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from typer import Option

from edgedeploy.cli.console import stderr
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    from edgedeploy.demo.program import Result
    from edgedeploy.live.showing import Showing
    from edgedeploy.vision.source import Shot, Source

    Timed = tuple[Shot, float]

_PORT = 8080
# Images per second of a folder, which has no rate of its own.
_FOLDER_RATE = 1.0


@dataclass(frozen=True)
class Shown:
    """A page that is served.

    Attributes:
        showing: what it shows.
        rate: images per second; None: as fast as they come.
        live: whether images go by while it is paused.
    """

    showing: Showing
    rate: float | None
    live: bool

    def paced(self, shots: Iterable[Timed], stopped: Callable[[], bool]) -> Iterator[Timed]:
        """Images at their rate, until `stopped()` is true."""
        from edgedeploy.live.pacing import paced

        return paced(shots, self.showing, stopped, rate=self.rate, live=self.live)

    def put(self, result: Result, capture_ms: float) -> None:
        """Show a result, whose image took `capture_ms` to arrive."""
        from edgedeploy.live.seen import Seen
        from edgedeploy.vision.draw import caption

        parts = result.outcome.all_parts
        times = {
            "capture": capture_ms,
            "preparation": parts.preprocess_ms,
            "inference": parts.inference_ms,
            "decoding": parts.postprocess_ms,
        }
        captions = [caption(each) for each in result.outcome.all_detections]
        self.showing.put(Seen(result.shot.index, result.drawn, captions, times))


@dataclass(frozen=True)
class Live:
    """Whether and how a demo is shown in a browser: options of a command that `flattened` adds to it."""

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
    def page(self, source: Source, title: str) -> Iterator[Shown | None]:
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
        showing = Showing()
        with serving(showing, title, _PORT if self.port is None else self.port) as address:
            stderr().print(f"open {address} in a browser; Ctrl-C ends it")
            yield Shown(showing, None if self.unpaced else own, source.kind == "camera")
