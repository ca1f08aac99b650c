"""`edgedeploy build`: networks into packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from edgedeploy.base.attempts import attempted
from edgedeploy.base.files import is_folder
from edgedeploy.cli import options
from edgedeploy.cli.console import as_json, as_table, conclude, print_outcomes, print_result, print_text, shown_progress
from edgedeploy.cli.overrides import Overriding
from edgedeploy.errors import EdgedeployError, InputError

if TYPE_CHECKING:
    from edgedeploy.building import Built, Plan
    from edgedeploy.target.board import Board


complete_pass = options.completing("edgedeploy.compile.passes.order:disableable")


def build(
    models: list[str] | None = Argument(
        None,
        metavar="MODEL",
        help="Networks: zoo names or files; default: `build.models` of the configuration, else the networks of the "
        "demos classification, landmark, retinaface and yolo-fastest.",
        autocompletion=options.complete_model,
    ),
    all_demos: bool = Option(False, "--all-demos", help="Build the networks of all demos."),
    board: options.BoardOption = "local",
    output: Path | None = Option(None, "--output", "-o", help="Package folder; default: dist/BOARD."),
    *,
    importing: options.ImportingEntries,
    quantize: Path | None = Option(
        None, metavar="FOLDER", help="Quantise first, calibrated with the images below FOLDER (`edgedeploy quantize`)."
    ),
    calibrate: Path | None = Option(
        None, metavar="FOLDER", help="Judge the choice of layers in half precision by the images below FOLDER."
    ),
    evaluate: Path | None = Option(
        None,
        metavar="FOLDER",
        help="State the accuracy of half precision on labelled images beside that of single (docs/quantisation.md).",
    ),
    demo: options.DemoOption = None,
    camera: str | None = Option(
        None,
        metavar="WIDTHxHEIGHT:FORMAT",
        help="Take camera frames as input: yuv420, nv12, yuyv, rgb, bgr or gray. Colour conversion, resizing and "
        "normalisation are compiled into the network.",
    ),
    tuning_records: options.TuningRecordsOption = None,
    overrides: Overriding,
    dump: str = Option(
        "", metavar="KINDS", help="Also write intermediate code: ir,ll,asm,passes (the module after each pass)."
    ),
    disable_pass: list[str] | None = Option(
        None, metavar="NAME", help="Leave out a compiler pass; repeat for several.", autocompletion=complete_pass
    ),
    print_pass_times: bool = Option(False, "--print-pass-times", help="Print how long each pass took."),
    list_passes: bool = Option(False, "--list-passes", help="List the compiler's passes in order, and build nothing."),
    explain: bool = Option(
        False,
        "--explain",
        help="List functions with template, type, tile, products per cycle, threads and work; fallbacks; functions "
        "on the CPU, not the device; why bytes are summed in float; transposes; removed channels; slow operators.",
    ),
    no_check: bool = Option(False, "--no-check", help="Do not compare outputs with the reference's."),
    force: bool = Option(False, "--force", help="Rebuild even if an up-to-date package exists."),
    virtual: bool = Option(False, "--virtual", help="Check packages on the virtual board, starting it if needed."),
) -> None:
    """Build packages, compared with another engine first.

    A network that fails does not stop the others; it is listed at the end with the reason. One that is unavailable,
    such as one that cannot be downloaded, does not count as a failure if any other was built (docs/exit-codes.md).

    Formats are recognised by content. If weights are in a separate file, either of the two files names the network.

    The first build for a board also builds the agent, the program that runs packages there; this takes minutes.
    Code for another architecture is checked under qemu's user-mode emulator if that is installed, else by the
    same network compiled for this machine. --virtual checks on an emulated board as well.

    An up-to-date package in the output folder or the cache is not rebuilt.

    Functions that were tuned on the same kind of board (`edgedeploy tune`) are built in their fastest configuration.

    The compiler's passes are described in docs/passes.md. A package built without some of them never replaces the
    usual one: run, demo and push build that again.

    --toolchain and the options after it override the board's profile for this build.

    \b
    Examples:
      edgedeploy build retinaface
      edgedeploy build net.onnx --input-shape data:1,3,224,224 --board rpi4
      edgedeploy build --board rpi4
      edgedeploy build --all-demos
      edgedeploy build net.onnx --dump passes --print-pass-times
      edgedeploy build net.onnx --disable-pass pad-channels
      edgedeploy build --board rpi4 --toolchain gnu-aarch64
      edgedeploy build --board rpi4 --mcpu cortex-a73
      edgedeploy build mobilenet_v1 --quantize photos/ --board rpi4
      edgedeploy build mobilenet_v1 --board rpi5 --calibrate photos/ --evaluate labelled/
      edgedeploy build retinaface --camera 640x480:yuv420 --board rpi4
      edgedeploy build -b rpi4 --cross-compiler clang --cross-compiler-options "--target=aarch64-linux-gnu -fuse-ld=lld"
    """
    from edgedeploy.agent.build import agent_for
    from edgedeploy.api.boards import connect
    from edgedeploy.api.packages import Package, plan
    from edgedeploy.building import DUMPS, Plan
    from edgedeploy.target.resolved import resolve

    if list_passes:
        _show_passes(disable_pass or ())
        return
    arguments = importing.arguments
    kinds = [kind for kind in dump.split(",") if kind]
    for kind in kinds:
        if kind not in DUMPS:
            raise InputError(f"cannot dump {kind!r}", why=f"the kinds are {', '.join(DUMPS)}")
    if models and all_demos:
        raise InputError("--all-demos does not go with named networks", why=f"{models[0]} is one")
    # What became of each network: first its plan, then its result.
    outcomes: dict[str, Plan | dict[str, Any] | EdgedeployError] = {}
    names = list(dict.fromkeys(models or _networks(all_demos, importing.weights, outcomes)))
    alone = len(names) + len(outcomes) == 1
    importing.check_one(names, "built", demo=demo, quantize=quantize, calibrate=calibrate, evaluate=evaluate)
    resolved = resolve(board, overrides.fields)
    progress = shown_progress()
    taken: dict[str, Path] = {}

    def planned(name: str) -> Plan:
        found = plan(
            name,
            resolved,
            **arguments,
            quantize=quantize,
            calibrate=calibrate,
            evaluate=evaluate,
            demo=demo,
            camera=camera,
            tuning=tuning_records,
            disabled_passes=disable_pass or (),
            progress=progress,
        )
        source = found.source
        if taken.setdefault(source.name, source.file) != source.file:
            raise InputError(
                f"two models would be written to the same package {found.package}",
                why=f"{taken[source.name]} and {source.file}",
                hints=["rename one of the files, or build them into two folders with --output"],
            )
        return found

    def built(each: Plan) -> dict[str, Any]:
        progress.note(f"{each.source.name} for {resolved.label}")
        built = each.build(
            output / each.package if output else each.default_output,
            dumps=kinds,
            checks="none" if no_check else "all",
            make_agent=True,
            reuse=not (force or explain or print_pass_times),  # the cache does not hold what these print
        )
        package, error = Package(built.path, plan=each, built=built), built.error
        if virtual:
            with connect(resolved, virtual=True, progress=progress) as there:
                error = there.test(package)
        explanation = package.explain() if explain else {}
        if not as_json():
            _print_built(built, virtual=virtual, print_pass_times=print_pass_times)
            if explain:
                _print_explanation(built, resolved.profile, explanation)
        return {**_as_dict(built, error, print_pass_times=print_pass_times), **explanation}

    # All networks are found before the first is built.
    for name in names:
        outcomes[name] = attempted(partial(planned, name), alone=alone)
    if output and not is_folder(output):
        progress.note(f"creating the folder {output} for the packages")
    for name, found in outcomes.items():
        if isinstance(found, Plan):
            outcomes[name] = attempted(partial(built, found), alone=alone)
    results = {name: each for name, each in outcomes.items() if isinstance(each, dict)}
    # Last: it takes minutes the first time, and what can be refused was refused by now.
    agent = None
    if results and not resolved.profile.runs_here:
        agent = attempted(partial(agent_for, resolved.profile, progress=progress), alone=alone)
    failed = {"board": resolved.label}
    print_result(
        [
            {"model": name, **failed, **each.to_dict()} if isinstance(each, EdgedeployError) else each
            for name, each in outcomes.items()
        ]
    )
    if not alone:
        print_outcomes(outcomes, lambda result: f"built: {result['package']}")
    conclude([*outcomes.items(), *([("the agent", agent)] if agent else [])])


def _networks(
    all_demos: bool, weights: Literal["file", "random"], unreadable: dict[str, Plan | dict[str, Any] | EdgedeployError]
) -> list[str]:
    """The default networks; demos that cannot be read are added to `unreadable` with their errors."""
    from edgedeploy.base.settings import networks_to_build
    from edgedeploy.demo import spec

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


def _as_dict(built: Built, error: float | None, *, print_pass_times: bool) -> dict[str, Any]:
    manifest = built.manifest
    tolerance = {"name", "usual", "relative", "absolute", "spread"}
    times = [{"pass": name, "ms": round(seconds * 1e3, 3)} for name, seconds in built.pass_times]
    recorded = {"model", "board", "target", "linker", "tuning_records", "quantisation", "half", "disabled_passes"}
    return {
        **manifest.model_dump(mode="json", include={*recorded, "abi", "memory"}),
        "state": "built",
        "package": str(built.path),
        "bytes": built.path.stat().st_size,
        "checked": manifest.checked.how,
        "emulator": manifest.checked.emulator,
        "error_of_tolerance": error,
        "tolerance": [case.model_dump(include=tolerance) for case in manifest.selftest.cases],
        "spread_to": manifest.selftest.spread_to,
        "dumps": [str(path) for path in built.dumps],
        **({"pass_times": times} if print_pass_times else {}),
    }


def _print_built(built: Built, *, virtual: bool, print_pass_times: bool) -> None:
    test, checked, record = built.manifest.selftest, built.manifest.checked, built.manifest.quantisation
    half = built.manifest.half
    ways = [checked.line()] * (checked.how != "no") + ["on the virtual board"] * virtual
    compared = f"equal to {test.reference} within {test.relative:g}" if ways else "not compared"
    lines = [
        f"{built.path}  {built.path.stat().st_size:,} bytes, {compared}",
        f"checked: {', and '.join(ways) or 'no'}",
        *(f"tolerance: {line}" for line in built.manifest.raised_tolerances()),
        f"memory: {built.manifest.memory.line()}",
        *(f"quantised: {line}" for line in (record.lines() if record else [])),
        *(f"precision: {line}" for line in (half.lines() if half else [])),
        *map(str, built.dumps),
    ]
    print_text(*lines)
    if print_pass_times:
        whole = [*built.pass_times, ("all", sum(seconds for _, seconds in built.pass_times))]
        rows = ([name, f"{seconds * 1e3:.1f}"] for name, seconds in whole)
        print_text(as_table(["pass", "ms"], rows, right=["ms"]))


def _show_passes(disabled: Sequence[str]) -> None:
    """List all passes in order; disabled ones of other packages are not loaded."""
    from edgedeploy.compile.passes import load_installed
    from edgedeploy.compile.passes.order import ordered

    records = [
        {
            "name": each.name,
            "what": each.what,
            "expects": str(each.expects),
            "leaves": str(each.result),
            "required": each.required or None,
            "package": each.package or "edgedeploy",
        }
        for each in ordered(load_installed(disabled))
    ]
    keys = ("what", "expects", "leaves", "package")
    rows = (
        [f"{each['name']}{' *' if each['required'] else ''}", *(str(each[key]) for key in keys)] for each in records
    )
    print_result(records, as_table(["pass", "", *keys[1:]], rows), "* required: it cannot be disabled")


def _print_explanation(built: Built, board: Board, explanation: Mapping[str, Any]) -> None:
    abi = built.manifest.abi
    needs = [f"glibc {abi.glibc}" if abi.glibc else "no version of glibc", *abi.libraries]
    code = f"code for {' '.join([board.triple, board.cpu, *board.features])}"
    print_text(code, f"linked by {built.manifest.linker}", f"needs {', '.join(needs)}")
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
    print_text(as_table(["function", "calls", "template", "type", "tile", "threads", "MFLOP", ""], rows))
    if removed := explanation["removed"]:
        rows = [[layer["layer"], str(layer["before"]), str(layer["after"])] for layer in removed]
        print_text(as_table(["layer", "channels", "left"], rows, title="removed"))
    fallbacks = sum(record["fallback"] for record in explanation["functions"])
    transposes = explanation["transposes"]
    print_text(
        *(f"slow operator: {operator} ({why})" for operator, why in explanation["slow_operators"].items()),
        f"{fallbacks} fallbacks; {transposes['edges']} transposes at inputs and outputs, {transposes['inside']} inside",
    )
    if built.manifest.half and built.manifest.half.single:
        rows = [[str(each.number), each.layer, each.why] for each in built.manifest.half.single]
        print_text(as_table(["number", "layer", "why"], rows, title="in single precision"))
