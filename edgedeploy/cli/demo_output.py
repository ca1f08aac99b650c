"""The output of `edgedeploy demo`: the logs of Tengine's examples, or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgedeploy.cli.console import print_json, print_json_line, print_lines

if TYPE_CHECKING:
    from edgedeploy.demo.program import DemoSession, Result
    from edgedeploy.demo.summary import Summary
    from edgedeploy.demo.tengine_log import LogStyle
    from edgedeploy.errors import EdgedeployError
    from edgedeploy.vision.source import Source


class Printer:
    """Prints results of demos as they come; only the objects of single images wait for `finish`."""

    def __init__(self, as_json: bool, style: LogStyle, *, several: bool) -> None:
        """Print JSON, or a log in a style; with `several` demos, the objects of single images form one list."""
        self._as_json, self._style, self._several = as_json, style, several
        self._objects: list[dict[str, Any]] = []
        self._printed = False
        self._as_lines = False

    def image(self, result: Result) -> None:
        """Print a single image, or one of a folder in Tengine's log."""
        if self._as_json:
            self._objects.append(result.as_dict())
        else:
            self._block(result.log(self._style))

    def begin(self, session: DemoSession, source: Source) -> None:
        """Print the lines before the images of a sequence."""
        if self._in_frames(source) and not self._as_json:
            self._block(session.head(source.path))

    def frame(self, result: Result, source: Source) -> None:
        """Print an image of a sequence."""
        if self._as_json:
            self._as_lines = True
            print_json_line(result.frame_dict())
        elif self._in_frames(source):
            name = f"frame {result.shot.index}" if source.is_film else result.shot.file.name
            print_lines(result.frame_log(name, self._style))
        else:
            self.image(result)

    def end(self, session: DemoSession, source: Source, summary: Summary, *, interrupted: bool) -> None:
        """Print the lines after the images of a sequence."""
        if self._as_json:
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
        if not self._as_json:
            return
        if self._as_lines:
            for each in self._objects:
                print_json_line(each)
        else:
            print_json(self._objects if self._several else self._objects[0])

    def _in_frames(self, source: Source) -> bool:
        """Whether the images of a sequence share one head; Tengine's examples take one image, and no folders."""
        return source.is_film or self._style != "tengine"

    def _block(self, lines: list[str]) -> None:
        print_lines([*([""] if self._printed else []), *lines])
        self._printed = True
