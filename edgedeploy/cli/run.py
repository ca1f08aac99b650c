"""`edgedeploy run`: one network on given or generated inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Argument, Option

from edgedeploy.cli import options
from edgedeploy.cli.console import as_json, as_table, print_result, shown_progress
from edgedeploy.cli.options import MOST, complete_model, file_option
from edgedeploy.cli.overrides import Overriding
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

# Outputs of all inferences are held until the last.
MOST_STEPS = 100_000


def run(
    model: str = Argument(
        ..., metavar="PACKAGE|MODEL", help="A package, a zoo name, or a network's file.", autocompletion=complete_model
    ),
    board: options.BoardOption = "local",
    *,
    where: options.WhereOrHere,
    inputs: Path | None = Option(None, "--inputs", "-i", help="A .npz file with an array for each input."),
    outputs: Path | None = file_option(None, "--outputs", "--output", "-o", what="Write the outputs to a .npz file."),
    npz_keys: Literal["names", "tvmc"] = Option(
        "names", help="Names of the outputs in the file: the network's, or output_0, output_1, ..."
    ),
    fill_mode: Literal["random", "ones", "zeros"] = Option("random", help="Values of the inputs without --inputs."),
    state: list[str] | None = Option(
        None,
        metavar="OUTPUT=INPUT",
        help="Feed an output back as an input of the next inference, starting from zeros unless --inputs has it; "
        "repeat for several states. Other inputs may have a value for each inference along a new first axis.",
    ),
    steps: int | None = Option(None, min=1, max=MOST_STEPS, help="Number of consecutive inferences with --state."),
    print_time: bool = Option(False, "--print-time", help="Measure, and print the times."),
    repeat: int = Option(10, "--repeat", "-r", min=1, max=MOST, help="Number of measurements."),
    number: int = Option(1, min=1, max=MOST, help="Inferences in each measurement."),
    warmup: int = Option(1, min=0, max=MOST, help="Inferences before the first measurement."),
    profile: bool = Option(False, "--profile", help="Print the time of each function, over --repeat inferences."),
    threads: options.ThreadsOption = None,
    print_top: int = Option(0, metavar="N", min=0, max=MOST, help="Print the N largest values of each output."),
    importing: options.ImportingEntries,
    overrides: Overriding,
) -> None:
    """Run or measure a network, here or on a board.

    On a board, the package is uploaded as a trial: the release in use stays.

    Examples: edgedeploy run squeezenet_v1.1 --print-time; edgedeploy run digits --board rpi4 --virtual

    --profile prints each function's share of the time, its operations and bytes per second, and, for boards with a
    `core_model` in their profile, the share of the cores' peak.

    Example: edgedeploy run net.tar.gz -i in.npz -o out.npz --print-top 5

    Example: edgedeploy run retinaface --board rpi4 --profile

    Example: edgedeploy run vad.onnx -i frames.npz -o scores.npz --state hn=h --state cn=c
    """
    from edgedeploy.api.networks import open_network
    from edgedeploy.package.archive import read_work
    from edgedeploy.runtime.arrays import fill, read_arrays, top_values, write_arrays
    from edgedeploy.runtime.profile import NAMES, profile_table, profiled
    from edgedeploy.runtime.session import check_tensors
    from edgedeploy.runtime.stateful import check_states, inferences, parse_states, run_in_turn
    from edgedeploy.target.resolved import resolve

    states = parse_states(state or [])
    if steps and not states:
        raise InputError("--steps goes with --state", why="without a state, inferences do not follow one another")
    given = read_arrays(inputs) if inputs else None
    arguments = {**importing.arguments, **where.options, "threads": threads}
    progress, resolved = shown_progress(), resolve(board, overrides.fields)
    if overrides.fields and model.endswith(".tar.gz"):
        why = "it is built already"
        raise InputError("--toolchain and the options after it do not go with a package", why=why)
    with open_network(model, board=resolved, **arguments, progress=progress) as network:
        package, manifest = network.package, network.manifest
        name, label = (manifest.model, manifest.board) if model.endswith(".tar.gz") else (model, board)
        free = [spec for spec in manifest.inputs if spec.name not in states]
        tensors = given if given is not None else {spec.name: fill(spec, fill_mode) for spec in free}
        runner = network.runner if states else network.runner.fitting(tensors)
        if states:
            check_states(states, runner.inputs, runner.outputs)
            series = inferences(tensors, runner.inputs, states, steps)
            tensors = series[0]
        check_tensors(tensors, runner.inputs)
        results = run_in_turn(runner, series, states) if states else runner.run(tensors)
        timing = {"repeat": repeat, "number": number, "warmup": warmup}
        measured = runner.measure(tensors, **timing) if print_time or as_json() else None
        functions = None
        if profile:
            by_function = runner.function_times(tensors, repeat=repeat, warmup=warmup)
            functions = profiled(by_function, read_work(package.path), resolved.profile, runner.threads)
        agent_memory = network.memory()
        machine = network.machine
    if outputs:
        named = {f"output_{place}": array for place, array in enumerate(results.values())}
        write_arrays(outputs, named if npz_keys == "tvmc" else results)
        if outputs.suffix != ".npz":
            progress.note(f"{outputs} is a .npz file despite its suffix")
    top = {key: top_values(array, print_top) for key, array in results.items()} if print_top else {}
    value: dict[str, Any] = {
        "model": name,
        "board": label,
        **({"machine": machine} if machine else {}),
        "threads": runner.threads,
        **({"inferences": len(series)} if states else {}),
        **(measured.to_dict() if measured else {}),
        **({"functions": [each.as_dict() for each in functions]} if functions is not None else {}),
        "memory": manifest.memory.model_dump(),
        **({"agent_memory": agent_memory} if agent_memory else {}),
        "outputs": [spec.model_dump(exclude={"below"}, exclude_none=True) for spec in runner.outputs],
        **({"top": top} if top else {}),
    }
    lines: list[str | Table] = [f"{name} on {label}, threads: {runner.threads}"]
    lines += [f"  board : {machine}"] if machine else []
    for kind, specs in (("input", runner.inputs), ("output", runner.outputs)):
        lines += [f"  {kind} {each.name}: {each.dtype}[{', '.join(map(str, each.shape))}]" for each in specs]
    if states:
        lines.append(f"{len(series)} inferences, each with the states of the one before")
    for output, entries in top.items():
        lines.append(f"largest values of {output}, with their flat indices:")
        lines += [f"  {entry['value']:.6g}  {entry['index']}" for entry in entries]
    if measured:
        times = "  ".join(f"{key.removesuffix('_ms')} {value:.3f}" for key, value in measured.to_dict().items())
        lines.append(f"time of one inference in ms: {times}  ({repeat} x {number} inferences)")
    if functions is not None:
        titles, *rows = profile_table(functions)
        lines.append(as_table(titles, rows, right=[title for title in titles if title not in NAMES]))
    lines.append(f"memory: {manifest.memory.line()}")
    if agent_memory:
        stated = ", ".join(f"{key.removesuffix('_bytes')} {size:,}" for key, size in agent_memory.items() if size)
        lines.append(f"memory of the agent in bytes: {stated}")
    print_result(value, *lines, *([f"outputs written to {outputs}"] if outputs else []))
