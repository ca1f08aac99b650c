"""`edgedeploy build`: networks into packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgedeploy.attempts import attempted
from edgedeploy.cli.console import conclude, print_json, print_outcomes, print_table, quiet_if, stdout
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
from edgedeploy.errors import EdgedeployError, InputError
from edgedeploy.files import is_folder

if TYPE_CHECKING:
    from edgedeploy.api.packages import Plan
    from edgedeploy.board import Board, Overrides
    from edgedeploy.building import Built


@overridable
def build(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Names of the zoo or paths of networks' files; by default those of the configuration "
            "(`build.models`), else those of the demos classification, landmark, retinaface and yolo-fastest.",
            autocompletion=complete_model,
        ),
    ] = None,
    all_demos: Annotated[bool, typer.Option("--all-demos", help="Build the networks of all demos.")] = False,
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
        bool,
        typer.Option(
            "--virtual", help="Check the packages on the virtual board of this profile; it is started unless it runs."
        ),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Build one package per network, compared with another program before it is written.

    A network that fails does not stop the others; it is listed at the end with the reason. One that is unavailable,
    such as one that cannot be downloaded, does not count as a failure if any other was built (docs/exit-codes.md).

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

    Examples: edgedeploy build --board rpi4; edgedeploy build --all-demos

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
    if models and all_demos:
        raise InputError("--all-demos does not go with networks that are named", why=f"{models[0]} is one")
    # What became of each network: first its plan, then its result.
    outcomes: dict[str, Plan | dict[str, Any] | EdgedeployError] = {}
    names = list(dict.fromkeys(models or _networks(all_demos, weights.value, outcomes)))
    alone = len(names) + len(outcomes) == 1
    check_one_model(names, "built", entries[0], options, batches)
    resolved = resolve(board, overrides)
    progress = quiet_if(json_output)
    if demo and len(names) > 1:
        raise InputError("--demo needs one model", why=f"{len(names)} are to be built")
    if quantize and len(names) > 1:
        raise InputError("--quantize needs one network", why=f"{len(names)} are to be built")
    taken: dict[str, Path] = {}

    def planned(name: str) -> Plan:
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
        if taken.setdefault(source.name, source.file) != source.file:
            raise InputError(
                f"two models would be written to the same package {package_name(source.name)}",
                why=f"{taken[source.name]} and {source.file}",
                hints=["rename one of the files, or build them into two folders with --output"],
            )
        return found

    def built(each: Plan) -> dict[str, Any]:
        progress.note(f"{each.source.name} for {resolved.label}")
        package = each.build(
            output / package_name(each.source.name) if output else None,
            # What is told of a build is not kept.
            force=force or explain or print_pass_times,
            checks="none" if no_check else "all",
            dumps=kinds,
            progress=progress,
        )
        built = package.built
        assert built
        error = built.error
        if virtual:
            with connect(resolved, virtual=True, progress=progress) as there:
                error = there.test(package)
        explanation = package.explain() if explain else {}
        if not json_output:
            _print_built(built, virtual=virtual, print_pass_times=print_pass_times)
            if explain:
                _print_code(built, resolved.profile)
                _print_explanation(explanation)
        manifest = built.manifest
        return {
            "model": each.source.name,
            "board": resolved.label,
            "state": "built",
            "package": str(built.path),
            "bytes": built.path.stat().st_size,
            "target": manifest.target,
            "linker": manifest.linker,
            "tuning_records": manifest.tuning_records,
            "quantisation": manifest.quantisation.model_dump(mode="json") if manifest.quantisation else None,
            "disabled_passes": manifest.disabled_passes,
            "abi": manifest.abi.model_dump(),
            "memory": manifest.memory.model_dump(),
            "checked": manifest.checked.how,
            "emulator": manifest.checked.emulator,
            "error_of_tolerance": error,
            "tolerance": [
                case.model_dump(include={"name", "usual", "relative", "absolute", "spread"})
                for case in manifest.selftest.cases
            ],
            "spread_to": manifest.selftest.spread_to,
            "dumps": [str(path) for path in built.dumps],
            **({"pass_times": passes.pass_times(built.pass_times)} if print_pass_times else {}),
            **explanation,
        }

    # All networks are found before the first is built.
    for name in names:
        outcomes[name] = attempted(partial(planned, name), alone=alone)
    if output and not is_folder(output):
        progress.note(f"the new folder {output} is for the packages")
    for name, found in outcomes.items():
        if isinstance(found, Plan):
            outcomes[name] = attempted(partial(built, found), alone=alone)
    results = {name: each for name, each in outcomes.items() if isinstance(each, dict)}
    # Last: it takes minutes the first time, and what can be refused was refused by now.
    agent = None
    if results and not resolved.profile.runs_here:
        agent = attempted(partial(agent_for, resolved.profile, progress=progress), alone=alone)
    if json_output:
        failed = {"board": resolved.label}
        print_json(
            [
                {"model": name, **failed, **each.to_dict()} if isinstance(each, EdgedeployError) else each
                for name, each in outcomes.items()
            ]
        )
    elif not alone:
        print_outcomes(outcomes, lambda result: f"built: {result['package']}")
    conclude([*outcomes.items(), *([("the agent", agent)] if agent else [])])


def _networks(
    all_demos: bool, weights: Literal["file", "random"], unreadable: dict[str, Plan | dict[str, Any] | EdgedeployError]
) -> list[str]:
    """The networks that are built where none is named; demos that cannot be read are told by their errors."""
    from edgedeploy.demo import spec
    from edgedeploy.settings import networks_to_build

    if not all_demos and (stated := networks_to_build()):
        return stated
    found = []
    for name in spec.all_demos(weights) if all_demos else spec.default_demos():
        demo = attempted(partial(spec.DEMOS.load, name))
        if isinstance(demo, EdgedeployError):
            unreadable[name] = demo
        else:
            found += [stage.model for stage in demo.stages]
    return found


def _print_built(built: Built, *, virtual: bool, print_pass_times: bool) -> None:
    """Print what a package is and how it was checked."""
    from edgedeploy.cli import passes

    test, checked, record = built.manifest.selftest, built.manifest.checked, built.manifest.quantisation
    ways = [checked.line()] * (checked.how != "no") + ["on the virtual board"] * virtual
    compared = f"equal to {test.reference} within {test.relative:g}" if ways else "not compared"
    stdout().print(f"{built.path}  {built.path.stat().st_size:,} bytes, {compared}")
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


def _print_code(built: Built, board: Board) -> None:
    """What the package's code is for, what linked it, and what it needs."""
    abi = built.manifest.abi
    needs = [f"glibc {abi.glibc}" if abi.glibc else "no version of glibc", *abi.libraries]
    console = stdout()
    console.print(f"code for {' '.join([board.triple, board.cpu, *board.features])}")
    console.print(f"linked by {built.manifest.linker}")
    console.print(f"needs {', '.join(needs)}")


def _print_explanation(explanation: Mapping[str, Any]) -> None:

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
