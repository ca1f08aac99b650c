"""`edgedeploy build`: networks into packages."""

from __future__ import annotations

from collections.abc import Mapping
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
    from edgedeploy.building import Built


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
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Build even if the same was built before, from the same and with the same settings."
        ),
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

    A package that lies there, or was kept, and was built from the same with the same settings, is not built again.

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
    from edgedeploy.api.boards import connect
    from edgedeploy.api.packages import Plan, plan
    from edgedeploy.building import DUMPS, package_name
    from edgedeploy.cli import passes
    from edgedeploy.cli.console import print_json, quiet_if, stdout
    from edgedeploy.demo.spec import DEMOS, all_demos
    from edgedeploy.errors import InputError
    from edgedeploy.files import is_folder
    from edgedeploy.resolved import resolve

    if list_passes:
        passes.show_passes(disable_pass or (), json_output)
        return
    entries, batches = parse_entries(input_shape), parse_batches(batch)
    options = import_options(weights, epsilon, set_inputs)
    kinds = [kind for kind in dump.split(",") if kind]
    for kind in kinds:
        if kind not in DUMPS:
            raise InputError(f"cannot dump {kind!r}", why=f"there are {', '.join(DUMPS)}")
    every = (stage.model for name in all_demos(weights.value) for stage in DEMOS.load(name).stages)
    names = models or list(dict.fromkeys(every))
    check_one_model(names, "built", entries[0], options, batches)
    resolved = resolve(board, overrides)
    progress = quiet_if(json_output)
    if demo and len(names) > 1:
        raise InputError("--demo needs one model", why=f"{len(names)} are to be built")
    if quantize and len(names) > 1:
        raise InputError("--quantize needs one network", why=f"{len(names)} are to be built")
    # All names are resolved before anything is built.
    plans: dict[str, Plan] = {}
    for name in names:
        found = plan(
            name,
            resolved,
            shapes=entries,
            batches=batches,
            options=options,
            calibrate=quantize,
            demo=demo,
            camera=camera,
            tuning=tuning_records,
            disabled_passes=disable_pass or (),
            progress=progress,
        )
        source = found.source
        if plans.setdefault(source.name, found).source.file != source.file:
            raise InputError(
                f"two models would be written to the same package {package_name(source.name)}",
                why=f"{plans[source.name].source.file} and {source.file}",
                hints=["rename one of the files, or build them into two folders with --output"],
            )
    if output and not is_folder(output):
        progress.note(f"the folder {output} is made")
    results = []
    for each in plans.values():
        source = each.source
        progress.note(f"{source.name} for {resolved.label}")
        package = each.build(
            output / package_name(source.name) if output else None,
            # What is told of a build is not kept.
            force=force or explain or print_pass_times,
            checks="none" if no_check else "all",
            dumps=kinds,
            progress=progress,
        )
        built = package.built
        assert built
        size, record = built.path.stat().st_size, built.manifest.quantisation
        error = built.error
        if virtual:
            with connect(resolved, virtual=True, progress=progress) as there:
                error = there.test(package)
        explanation = package.explain() if explain else {}
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
            checked = built.manifest.checked
            ways = [checked.line()] * (checked.how != "no") + ["on the virtual board"] * virtual
            compared = f"equal to {test.reference} within {test.relative:g}" if ways else "not compared"
            stdout().print(f"{built.path}  {size:,} bytes, {compared}")
            stdout().print(f"checked: {', and '.join(ways) or 'no'}")
            for line in test.raised(built.manifest.outputs, quantised=record is not None):
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
