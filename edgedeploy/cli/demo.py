"""`edgedeploy demo`: images, videos and cameras through networks, with results to read, to save or to compare."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Exit, Option

from edgedeploy.base.attempts import attempted
from edgedeploy.base.interruption import INTERRUPTED
from edgedeploy.cli import console, options
from edgedeploy.cli.demo_output import Live, Printer, seen
from edgedeploy.cli.options import MOST, complete_model, file_option
from edgedeploy.cli.overrides import Overriding
from edgedeploy.cli.sound_demo import Listening, is_sound_demo, sound_demo
from edgedeploy.errors import EdgedeployError, InputError

if TYPE_CHECKING:
    from edgedeploy.base.progress import Progress
    from edgedeploy.demo.output import Save
    from edgedeploy.demo.program import DemoSession
    from edgedeploy.live.showing import Showing
    from edgedeploy.vision.source import Source


ALL = "all"

complete_demo = options.complete("demos", "demos/audio", also=[ALL])


def demo(
    name: str | None = Argument(
        None,
        metavar="[DEMO|PACKAGE]",
        help="A demo's name or file, a package with demo information, or `all`; default: list the demos.",
        autocompletion=complete_demo,
    ),
    image: Path | None = Option(
        None,
        metavar="WHAT",
        help="Run on this instead of the demo's image: an image, a folder of images, a video, or a camera of this "
        "machine by its number.",
    ),
    *,
    board: options.BoardOrLast,
    where: options.WhereOrHere,
    model: str | None = Option(
        None, help="Use this network, a zoo name or a file, instead of the demo's.", autocompletion=complete_model
    ),
    set_inputs: options.SetOption = None,
    weights: options.WeightsOption = "file",
    camera: str | None = Option(
        None,
        metavar="DEVICE",
        help="Use a camera of the board, which sends what it sees: its number or device, `rpicam` for a Raspberry "
        "Pi's own, rtsp://... or http://... for a network camera, or `auto`.",
    ),
    repeat: int | None = Option(None, "--repeat", "-r", min=1, max=MOST, help="Inferences to time; default: 1."),
    threads: options.ThreadsOption = None,
    save: Path | None = file_option(
        None,
        "--save",
        what="Save the images with results drawn in: to an image, a folder (for folders), or a .mp4 or .avi (for "
        "videos and cameras). With `all`, each demo's name is added to the file name.",
    ),
    log: Literal["tengine", "named"] = Option(
        "named", help="`named`: with class names and landmarks; `tengine`: exactly as Tengine's examples."
    ),
    frames: int | None = Option(
        None, metavar="N", min=1, max=MOST, help="Stop after N images of a folder, video or camera, or N scores."
    ),
    listening: Listening,
    live: Live,
    overrides: Overriding,
) -> None:
    """Run a network on images, a video or a camera.

    Results are printed in the format of Tengine's examples, with the names of classes and the points of landmarks;
    `--log tengine` leaves both out where Tengine does. For a folder, video or camera they follow the times of each
    image's preprocessing, inference and postprocessing, and a summary with the means comes last. Ctrl-C ends a video
    or camera with the summary, and the video saved so far is playable. With --json, folders, videos and cameras
    give one object on each line, the last one under the key `summary`.

    --serve shows folders, videos and cameras on a page in the browser, with the results drawn in and the rates
    (docs/live-page.md). It ends with the video, or with Ctrl-C.

    With a board, only the networks run there, over one connection; preprocessing and postprocessing run here. With
    --camera everything runs there, on the board's own camera; `--image 0` is always this machine's camera. The default
    is the board last built for in this folder, else this machine.

    Demos on sounds (wake-word, voice-activity) print a line `TIME SCORE` for each frame, and `TIME SCORE LABEL
    begin|end` for each detection; with --json one object on each line.

    The results go to standard output, progress to standard error. `all` runs the demos on images one after
    another. One that fails does not stop the others; it is listed at the end with the reason. One that is
    unavailable, such as one that cannot be downloaded, does not count as a failure if any other ran
    (docs/exit-codes.md). Demos without weights in the zoo are left out. `yolo`, `segmentation` and `depth` are
    for your own networks: give one with --model.

    \b
    Examples:
      edgedeploy demo retinaface --save faces.jpg
      edgedeploy demo dist/rpi4/retinaface.tar.gz --board rpi4 --image party.jpg
      edgedeploy demo facepipe --image party.mp4 --save party-faces.mp4
      edgedeploy demo hands --image 0 --frames 300
      edgedeploy demo yolo --model yolo11n-seg.onnx --image street.jpg --save seen.jpg
      edgedeploy demo segmentation --model lraspp.onnx --image street.jpg --save classes.png
      edgedeploy demo yolo-fastest --image 0 --frames 100 --json
      edgedeploy demo yolo-fastest --image street.mp4 --serve
      edgedeploy demo ocr --image receipt.jpg --save read.png
      edgedeploy demo classification --image holiday/ --save seen/
      edgedeploy demo retinaface --board rpi4 --virtual
      edgedeploy demo retinaface --board rpi4 --camera auto --save seen.mp4
      edgedeploy demo yolo-fastest --board rpi4 --camera auto --serve
      edgedeploy demo wake-word --microphone --threshold 0.7
      edgedeploy demo all | tee demo.log
    """
    if name is None:
        _list()
        return
    from edgedeploy.demo.board_camera import board_camera
    from edgedeploy.demo.output import saving
    from edgedeploy.demo.program import PackagedProgram, Program
    from edgedeploy.demo.spec import all_demos
    from edgedeploy.package.archive import SUFFIX
    from edgedeploy.vision.source import open_source

    if camera is not None and image:
        raise InputError("--camera does not go with --image", why="a demo has one source of images")
    if name == ALL and camera is not None:
        raise InputError("--camera needs one demo", hints=["name one; `edgedeploy demo` lists them"])
    if model and name.endswith(SUFFIX):
        raise InputError("--model does not go with a package", why="it holds its network")
    if name == ALL and model:
        raise InputError("--model needs one demo", hints=["name the demo that the network is for, instead of all"])
    live.check(one_demo=name != ALL and not is_sound_demo(name))
    progress = console.shown_progress()
    resolved = board.resolved(overrides.fields, otherwise="local")
    place, reading = where.place(resolved), options.Importing(set_inputs=set_inputs, weights=weights).options
    opening: dict[str, Any] = {"threads": threads, "options": reading, "progress": progress}
    hinting = options.here_if_silent(board.board, where)
    if is_sound_demo(name):
        of_images = {"--image": image, "--camera": camera, "--save": save, "--repeat": repeat}
        if given := [option for option, value in of_images.items() if value]:
            raise InputError(f"{given[0]} is for demos on images", why=f"{name} listens", hints=["give --wav FILE"])
        listen = hinting(sound_demo)
        if listen(name, listening, place, model=model, frames=frames, **opening):
            raise Exit(INTERRUPTED)
        return
    if listening != Listening():
        hints = ["name one of them, as wake-word"]
        raise InputError("--wav, --microphone and --threshold are for demos on sounds", hints=hints)
    printer = Printer(log, several=name == ALL)

    @hinting
    def perform(each: str) -> bool:
        """Run one demo; returns whether Ctrl-C ended it."""
        program = PackagedProgram(Path(each)) if each.endswith(SUFFIX) else Program.of(each, model)
        target = save.with_name(f"{save.stem}-{each}{save.suffix}") if save and name == ALL else save
        with ExitStack() as stack:
            session: DemoSession | None = None
            if camera is not None and place.remote:
                if repeat:
                    raise InputError("--repeat needs a single image", why="a camera has many")
                if isinstance(program, PackagedProgram):
                    why = "boards can use only networks that were built here"
                    raise InputError("--camera needs a demo's name", why=why)
                session, source = stack.enter_context(board_camera(program, place, camera, **opening))
            else:
                here = image if camera is None else Path("0" if camera == "auto" else camera)
                source = stack.enter_context(open_source(here or program.image(progress), progress))
            save_drawn = stack.enter_context(saving(target, source, progress))
            if source.kind == "camera" and place.remote and session is None:
                progress.note(f"{source.path} is this machine's camera; --camera names one of the board")
            if repeat and source.kind != "image":
                raise InputError("--repeat needs a single image", why=f"{source.path} is a {source.kind}")
            showing = stack.enter_context(live.page(source, f"{each} on {resolved.name}"))
            session = session or stack.enter_context(program.opened(place, **opening))
            if source.kind != "image":
                return _show_all(session, source, save_drawn if target else None, printer, frames, progress, showing)
            [shot] = source.shots
            result = session.infer(shot, repeat=repeat or 1)
            save_drawn(shot, result.drawn(still=True))
            printer.image(result)
            return False

    names = all_demos(weights) if name == ALL else [name]
    if name == ALL and (left := [each for each in all_demos("random") if each not in names]):
        progress.note(f"without weights in the zoo, and shown with --weights random: {', '.join(left)}")
    outcomes: dict[str, bool | EdgedeployError] = {}  # whether Ctrl-C ended a film
    interrupted = False
    for each in names:
        outcomes[each] = attempted(partial(perform, each), alone=name != ALL)
        if isinstance(outcome := outcomes[each], EdgedeployError):
            printer.failure(each, outcome)
        elif outcome:
            interrupted = True
            break
    printer.finish()
    if name == ALL:
        console.print_outcomes(outcomes, lambda _: "shown", what="demo")
    if interrupted:
        raise Exit(INTERRUPTED)
    console.conclude(outcomes.items())


def _show_all(
    session: DemoSession,
    source: Source,
    save: Save | None,
    printer: Printer,
    frames: int | None,
    progress: Progress,
    showing: Showing | None,
) -> bool:
    """Show a sequence, and always its summary; returns whether Ctrl-C ended it."""
    from edgedeploy.demo.output import Summary
    from edgedeploy.live.showing import paced, timed

    total = min((count for count in (source.length, frames) if count), default=None)
    bar = progress.steps(f"show {source.path.name}", total) if total else nullcontext(lambda: None)
    summary = Summary()
    tracker = session.tracker() if source.is_film else None
    printer.begin(session, source)
    with console.until_interrupted() as interrupted:
        try:
            with bar as advance:
                shots = timed(source.shots)
                for shot, waited_ms in islice(paced(shots, showing, interrupted) if showing else shots, frames):
                    result = session.infer(shot, repeat=0, tracker=tracker)
                    if save:
                        save(shot, result.drawn(still=not source.is_film))
                    if showing:
                        showing.put(seen(result, shot.capture_ms(waited_ms)))
                    summary.add(result.outcome)
                    printer.frame(result, source)
                    advance()
                    if interrupted():
                        break
        finally:
            if summary.frames:
                printer.end(session, source, summary, interrupted=interrupted())
        return interrupted()


def _list() -> None:
    from edgedeploy.audio.spec import SOUND_DEMOS
    from edgedeploy.demo.spec import DEMOS

    demos = [(path.stem, each.model, each.description) for path, each in console.readable(DEMOS)]
    demos += [(path.stem, each.stages[-1].model, each.description) for path, each in console.readable(SOUND_DEMOS)]
    objects = [{"name": name, "model": model, "description": description} for name, model, description in demos]
    console.print_result(objects, console.as_table(["demo", "model", "description"], demos))
