"""`edgedeploy build`: networks into packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.options import (
    BatchOption,
    BoardOption,
    DemoOption,
    EpsilonOption,
    InputShapesOption,
    JsonOption,
    SetOption,
    TuningRecordsOption,
    Weights,
    WeightsOption,
    check_one_model,
    complete_model,
    import_options,
    parse_batches,
    parse_entries,
)
from edgedeploy.cli.overrides import overridable
from edgedeploy.cli.passes import DisablePassOption, ListPassesOption, PassTimesOption

if TYPE_CHECKING:
    from edgedeploy.board import Board, Overrides
    from edgedeploy.build import Built, Use
    from edgedeploy.frontends.format import ImportOptions, Shapes
    from edgedeploy.progress import Progress
    from edgedeploy.resolved import ResolvedBoard
    from edgedeploy.zoo.source import Source


@overridable
def build(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Names of the zoo or paths of networks' files; the models of all demos by default.",
            autocompletion=complete_model,
        ),
    ] = None,
    board: BoardOption = "local",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder for the packages; dist/BOARD by default.")
    ] = None,
    input_shape: InputShapesOption = None,
    batch: BatchOption = None,
    set_inputs: SetOption = None,
    weights: WeightsOption = Weights.file,
    epsilon: EpsilonOption = None,
    quantize: Annotated[
        Path | None,
        typer.Option(
            "--quantize",
            metavar="FOLDER",
            help="Quantise the network first, calibrated with the images below this folder; see `edgedeploy quantize`.",
        ),
    ] = None,
    demo: DemoOption = None,
    camera: Annotated[
        str | None,
        typer.Option(
            "--camera",
            metavar="WIDTHxHEIGHT:FORMAT",
            help="The package takes a camera's frames of this size as they are: yuv420, nv12, yuyv, rgb, bgr or gray. "
            "Colour, size and normalisation are compiled into the network.",
        ),
    ] = None,
    tuning_records: TuningRecordsOption = None,
    *,
    overrides: Overrides,
    dump: Annotated[
        str,
        typer.Option(
            "--dump",
            metavar="KINDS",
            help="Also write intermediate code: ir,ll,asm,passes or some of them. passes is a folder with the module "
            "after each pass.",
        ),
    ] = "",
    disable_pass: DisablePassOption = None,
    print_pass_times: PassTimesOption = False,
    list_passes: ListPassesOption = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="List functions with template, type, tile, inner step and its products per cycle, threads and work; "
            "fallbacks; functions that run on the CPU instead of a device; why bytes are summed up in float; "
            "transposes; removed channels; slow operators.",
        ),
    ] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not compare the code's outputs with the reference's.")
    ] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Check the packages on the board's virtual one, started if need be.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Build one package per network, compared with another program before it is written.

    Formats are recognised by content. Where weights are in a file of their own, either of the two files names the
    network.

    The first build for a board also builds the agent, the program that runs packages there; that takes minutes.
    Code for another architecture is checked under qemu's user-mode emulator if that is installed, else by the
    same network compiled for this machine. --virtual checks on an emulated board as well.

    Functions that were tuned on such a board (`edgedeploy tune`) are built in their fastest configuration.

    The compiler's passes are described in docs/passes.md. The package of a build without some of them is never taken
    for the usual one: run, demo and push build that again.

    --toolchain and the options after it override the board's profile for this build.

    Examples: edgedeploy build retinaface; edgedeploy build net.onnx --input-shape data:1,3,224,224 --board rpi4

    Examples: edgedeploy build net.onnx --dump passes --print-pass-times; edgedeploy build net.onnx --disable-pass
    pad-channels

    Examples: edgedeploy build --board rpi4 --toolchain gnu-aarch64; edgedeploy build --board rpi4 --mcpu cortex-a73

    Example: edgedeploy build mobilenet_v1 --quantize photos/ --board rpi4

    Example: edgedeploy build retinaface --camera 640x480:yuv420 --board rpi4

    Example: edgedeploy build --board rpi4 --cross-compiler clang --cross-compiler-options "--target=aarch64-linux-gnu
    -fuse-ld=lld"
    """
    from edgedeploy.agent.build import agent_for
    from edgedeploy.build import DUMPS, default_output, package_name
    from edgedeploy.build import build as build_package
    from edgedeploy.camera.format import Camera
    from edgedeploy.cli import passes
    from edgedeploy.cli.console import print_json, quiet_if, stdout
    from edgedeploy.compile.explain import explain as explained
    from edgedeploy.demo.spec import DEMOS, all_demos
    from edgedeploy.demo.usage import find_use
    from edgedeploy.errors import InputError
    from edgedeploy.resolved import resolve
    from edgedeploy.zoo.source import find_source, note_weights

    if list_passes:
        passes.show_passes(disable_pass or (), json_output)
        return
    (shapes, *further), batches = parse_entries(input_shape), parse_batches(batch)
    options = import_options(weights, epsilon, set_inputs)
    kinds = [kind for kind in dump.split(",") if kind]
    for kind in kinds:
        if kind not in DUMPS:
            raise InputError(f"cannot dump {kind!r}", why=f"there are {', '.join(DUMPS)}")
    every = (stage.model for name in all_demos(weights.value) for stage in DEMOS.load(name).stages)
    names = models or list(dict.fromkeys(every))
    check_one_model(names, "built", shapes, options, batches)
    resolved = resolve(board, overrides)
    progress = quiet_if(json_output)
    frames = Camera.parsed(camera) if camera else None
    if frames and (further or batches):
        raise InputError("--camera goes with one shape of the network", why="a package takes frames of one size")
    if demo and len(names) > 1:
        raise InputError("--demo needs one model", why=f"{len(names)} are to be built")
    if quantize and (len(names) > 1 or further or batches or options.values or options.weights != "file"):
        raise InputError(
            "--quantize needs one network of one shape, with its own weights",
            hints=["quantise each with `edgedeploy quantize`, and build the files"],
        )
    # All names are resolved before anything is built.
    sources: dict[str, Source] = {}
    uses: dict[str, Use | None] = {}
    for name in names:
        if quantize:
            source = _quantised(name, quantize, demo, shapes, options, progress)
        else:
            source = find_source(name, shapes, progress, options).with_further(further, batches)
        note_weights(source, options, progress)
        if sources.setdefault(source.name, source).file != source.file:
            raise InputError(
                f"two models would be written to the same package {package_name(source.name)}",
                why=f"{sources[source.name].file} and {source.file}",
                hints=["rename one of the files, or build them into two folders with --output"],
            )
        uses[source.name] = find_use(name, demo, frames)
    results = []
    check = _checker(resolved, progress) if virtual else None
    for source in sources.values():
        path = (output / package_name(source.name)) if output else default_output(source.name, resolved)
        progress.note(f"{source.name} for {resolved.label}")
        built = build_package(
            source,
            resolved,
            path,
            tuning=tuning_records,
            disabled_passes=disable_pass or (),
            use=uses[source.name],
            dumps=kinds,
            checks="none" if no_check else "all",
            make_agent=True,
            progress=progress,
        )
        size, record = built.path.stat().st_size, built.manifest.quantisation
        error = check(built.path) if check else built.error
        explanation = explained(built.compiled) if explain else {}
        results.append(
            {
                "model": source.name,
                "board": resolved.label,
                "package": str(built.path),
                "bytes": size,
                "target": built.manifest.target,
                "linker": built.manifest.linker,
                "tuning_records": built.manifest.tuning_records,
                "quantisation": record.model_dump(mode="json") if record else None,
                "disabled_passes": built.manifest.disabled_passes,
                "abi": built.manifest.abi.model_dump(),
                "memory": built.manifest.memory.model_dump(),
                "checked": built.manifest.checked.how,
                "emulator": built.manifest.checked.emulator,
                "error_of_tolerance": error,
                "tolerance": [
                    case.model_dump(include={"name", "usual", "relative", "absolute", "spread"})
                    for case in built.manifest.selftest.cases
                ],
                "spread_to": built.manifest.selftest.spread_to,
                "dumps": [str(path) for path in built.dumps],
                **({"pass_times": passes.pass_times(built.pass_times)} if print_pass_times else {}),
                **explanation,
            }
        )
        if not json_output:
            test = built.manifest.selftest
            ways = [built.manifest.checked.line()] * (built.error is not None) + ["on the virtual board"] * bool(check)
            compared = f"equal to {test.reference} within {test.relative:g}" if ways else "not compared"
            stdout().print(f"{built.path}  {size:,} bytes, {compared}")
            stdout().print(f"checked: {', and '.join(ways) or 'no'}")
            for line in test.raised(built.manifest.outputs):
                stdout().print(f"tolerance: {line}")
            stdout().print(f"memory: {built.manifest.memory.line()}")
            for line in record.lines() if record else []:
                stdout().print(f"quantised: {line}")
            for path in built.dumps:
                stdout().print(str(path))
            if print_pass_times:
                passes.print_pass_times(built.pass_times)
            if explain:
                _print_code(built, resolved.profile)
                _print_explanation(explanation)
    # Last: it takes minutes the first time, and what can be refused was refused by now.
    if not resolved.profile.runs_here:
        agent_for(resolved.profile, progress=progress)
    if json_output:
        print_json(results)


def _quantised(
    name: str, folder: Path, demo: str | None, shapes: Shapes, options: ImportOptions, progress: Progress
) -> Source:
    """The network, quantised with the usual settings; one that was made before is taken."""
    from edgedeploy.quantize.keeping import quantised_source
    from edgedeploy.quantize.making import find_task

    task = find_task(name, folder, demo=demo, shapes=shapes, options=options, progress=progress)
    return quantised_source(task, progress)


def _checker(board: ResolvedBoard, progress: Progress) -> Callable[[Path], float]:
    """Has the board's virtual one test a package; the error as a fraction of the tolerance."""
    from edgedeploy.release.lock import locked
    from edgedeploy.release.push import bring, release_for
    from edgedeploy.remote.address import addresses
    from edgedeploy.remote.connection import Connection

    [address] = addresses(board, virtual=True, progress=progress)

    def check(package: Path) -> float:
        release = release_for(package, board.profile, progress)
        with Connection(address, progress=progress) as connection, locked(connection):
            trial = bring(connection, release, temporarily=False, progress=progress)
        return max((float(output["fraction"]) for output in trial.test["outputs"]), default=0.0)

    return check


def _print_code(built: Built, board: Board) -> None:
    """What the package's code is for, what linked it, and what it needs."""
    from edgedeploy.cli.console import stdout

    abi = built.manifest.abi
    needs = [f"glibc {abi.glibc}" if abi.glibc else "no version of glibc", *abi.libraries]
    console = stdout()
    console.print(f"code for {' '.join([board.triple, board.cpu, *board.features])}")
    console.print(f"linked by {built.manifest.linker}")
    console.print(f"needs {', '.join(needs)}")


def _print_explanation(explanation: Mapping[str, Any]) -> None:
    from edgedeploy.cli.console import print_table, stdout

    rows = []
    for record in explanation["functions"]:
        notes = ["FALLBACK: one value at a time"] if record["fallback"] else []
        notes += ["slower than it could be, for smaller rounding errors"] if record["exact"] else []
        notes += [f"on the CPU: {record['cpu']}"] if record["cpu"] else []
        notes += [record["reason"]] if record["reason"] else []
        template = record["template"] or ("free reshape" if record["free"] else "TVM's own")
        threads = "all" if record["parallel"] else "one"
        work = f"{record['mflop']:.2f}"
        calls, kind = str(record["calls"]), record["type"]
        row = [record["function"], calls, template, kind, record["tile"], threads, work, "; ".join(notes)]
        rows.append(row)
    print_table(["function", "calls", "template", "type", "tile", "threads", "MFLOP", ""], rows)
    if removed := explanation["removed"]:
        rows = [[layer["layer"], str(layer["before"]), str(layer["after"])] for layer in removed]
        print_table(["layer", "channels", "left"], rows, title="removed")
    for operator, why in explanation["slow_operators"].items():
        stdout().print(f"slow operator: {operator} ({why})")
    fallbacks = sum(record["fallback"] for record in explanation["functions"])
    transposes = explanation["transposes"]
    stdout().print(
        f"{fallbacks} fallbacks; {transposes['edges']} transposes at inputs and outputs, {transposes['inside']} inside"
    )
