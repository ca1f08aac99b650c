"""`edgedeploy run`: one network on given or made-up inputs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.console import print_json, print_table, quiet_if, stdout
from edgedeploy.cli.options import (
    MOST,
    BatchOption,
    BoardOption,
    EpsilonOption,
    InputShapesOption,
    JsonOption,
    SetOption,
    ThreadsOption,
    Weights,
    WeightsOption,
    WhereOrHere,
    complete_model,
    file_option,
    import_options,
    parse_batches,
    parse_entries,
)
from edgedeploy.cli.overrides import overridable
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from edgedeploy.board import Overrides
    from edgedeploy.tensors import TensorSpec

# Outputs of all inferences are held until the last.
MOST_STEPS = 100_000


class FillMode(str, Enum):
    """What inputs hold that no file gives."""

    random = "random"
    ones = "ones"
    zeros = "zeros"


class NpzKeys(str, Enum):
    """What arrays in a file of outputs are called."""

    names = "names"
    tvmc = "tvmc"


@overridable
def run(
    model: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE|MODEL",
            help="A package, a name of the zoo, or a network's file.",
            autocompletion=complete_model,
        ),
    ],
    board: BoardOption = "local",
    *,
    where: WhereOrHere,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", "-i", help="A .npz file with one array for each input, by name.")
    ] = None,
    outputs: Annotated[
        Path | None, file_option("--outputs", "--output", "-o", what="Write the outputs to this .npz file, by name.")
    ] = None,
    npz_keys: Annotated[
        NpzKeys,
        typer.Option(
            "--npz-keys", help="What the outputs are called there: by the network, or output_0, output_1, ..."
        ),
    ] = NpzKeys.names,
    fill_mode: Annotated[
        FillMode, typer.Option("--fill-mode", help="Values of the inputs when --inputs is not given.")
    ] = FillMode.random,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="OUTPUT=INPUT",
            help="An output that is an input of the next inference; zeros come first, unless --inputs gives it. "
            "May be given for each state. Other inputs may have a value for each inference, along a first axis.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, max=MOST_STEPS, help="Inferences that follow one another, with --state."),
    ] = None,
    print_time: Annotated[bool, typer.Option("--print-time", help="Measure, and print the times.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", "-r", min=1, max=MOST, help="How many times to measure.")] = 10,
    number: Annotated[int, typer.Option("--number", min=1, max=MOST, help="Inferences in each measurement.")] = 1,
    warmup: Annotated[
        int, typer.Option("--warmup", min=0, max=MOST, help="Inferences before the first measurement.")
    ] = 1,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print the time of each function, by --repeat inferences.")
    ] = False,
    threads: ThreadsOption = None,
    print_top: Annotated[
        int,
        typer.Option("--print-top", metavar="N", min=0, max=MOST, help="Print the N largest values of each output."),
    ] = 0,
    input_shape: InputShapesOption = None,
    batch: BatchOption = None,
    set_inputs: SetOption = None,
    weights: WeightsOption = Weights.file,
    epsilon: EpsilonOption = None,
    overrides: Overrides,
    json_output: JsonOption = False,
) -> None:
    """Run a network once, or measure it, on this machine or on a board.

    On a board, the package is uploaded as a release that is not switched to.

    Examples: edgedeploy run squeezenet_v1.1 --print-time; edgedeploy run digits --board rpi4 --virtual

    With --profile, a table says of each function its share of the time, its operations and bytes a second, and, on
    boards whose profile has a `core_model`, the share of the cores' peak.

    Example: edgedeploy run net.tar.gz -i in.npz -o out.npz --print-top 5

    Example: edgedeploy run retinaface --board rpi4 --profile

    Example: edgedeploy run vad.onnx -i frames.npz -o scores.npz --state hn=h --state cn=c
    """
    from edgedeploy.api.networks import open_network
    from edgedeploy.package.work import read_work
    from edgedeploy.resolved import resolve
    from edgedeploy.runtime.arrays import fill, read_arrays, top_values, write_arrays
    from edgedeploy.runtime.profile import NAMES, profile_table, profiled
    from edgedeploy.runtime.session import check_tensors
    from edgedeploy.runtime.stateful import check_states, inferences, parse_states, run_in_turn

    states = parse_states(state or [])
    if steps and not states:
        raise InputError("--steps goes with --state", why="without a state, inferences do not follow one another")
    given = read_arrays(inputs) if inputs else None
    entries, batches = parse_entries(input_shape), parse_batches(batch)
    options = import_options(weights, epsilon, set_inputs)
    progress, resolved = quiet_if(json_output), resolve(board, overrides)
    if overrides and model.endswith(".tar.gz"):
        why = "it is built already"
        raise InputError("--toolchain and the options after it do not go with a package", why=why)
    with open_network(
        model,
        board=resolved,
        **where.options,
        threads=threads,
        shapes=entries,
        batches=batches,
        options=options,
        progress=progress,
    ) as network:
        package, manifest = network.package, network.manifest
        name, label = (manifest.model, manifest.board) if model.endswith(".tar.gz") else (model, board)
        free = [spec for spec in manifest.inputs if spec.name not in states]
        tensors = given if given is not None else {spec.name: fill(spec, fill_mode.value) for spec in free}
        runner = network.runner if states else network.runner.fitting(tensors)
        if states:
            check_states(states, runner.inputs, runner.outputs)
            series = inferences(tensors, runner.inputs, states, steps)
            tensors = series[0]
        check_tensors(tensors, runner.inputs)
        results = run_in_turn(runner, series, states) if states else runner.run(tensors)
        measured = (
            runner.measure(tensors, repeat=repeat, number=number, warmup=warmup) if print_time or json_output else None
        )
        functions = None
        if profile:
            by_function = runner.function_times(tensors, repeat=repeat, warmup=warmup)
            functions = profiled(by_function, read_work(package.path), resolved.profile, runner.threads)
        agent_memory = network.memory()
        machine = network.machine
    if outputs:
        as_tvmc = npz_keys is NpzKeys.tvmc
        write_arrays(
            outputs,
            {f"output_{index}" if as_tvmc else name: array for index, (name, array) in enumerate(results.items())},
        )
        if outputs.suffix != ".npz":
            progress.note(f"{outputs} is a .npz file, whatever its name says")
    if json_output:
        print_json(
            {
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
                **({"top": {key: top_values(array, print_top) for key, array in results.items()}} if print_top else {}),
            }
        )
        return
    console = stdout()
    console.print(f"{name} on {label}, threads: {runner.threads}")
    if machine:
        console.print(f"  board : {machine}")
    for kind, specs in (("input", runner.inputs), ("output", runner.outputs)):
        for spec in specs:
            console.print(f"  {kind} {_shown(spec)}")
    if states:
        console.print(f"{len(series)} inferences, each with the states of the one before")
    _print_top(results, print_top)
    if measured:
        times = "  ".join(f"{key.removesuffix('_ms')} {value:.3f}" for key, value in measured.to_dict().items())
        console.print(f"time of one inference in ms: {times}  ({repeat} x {number} inferences)")
    if functions is not None:
        titles, *rows = profile_table(functions)
        print_table(titles, rows, right=[title for title in titles if title not in NAMES])
    console.print(f"memory: {manifest.memory.line()}")
    if agent_memory:
        stated = ", ".join(f"{key.removesuffix('_bytes')} {value:,}" for key, value in agent_memory.items() if value)
        console.print(f"memory of the agent in bytes: {stated}")
    if outputs:
        console.print(f"outputs written to {outputs}")


def _shown(spec: TensorSpec) -> str:
    return f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _print_top(results: dict[str, np.ndarray], count: int) -> None:
    from edgedeploy.runtime.arrays import top_values

    for name, array in results.items():
        if count:
            stdout().print(f"largest values of {name}, with their flat indices:")
        for entry in top_values(array, count):
            stdout().print(f"  {entry['value']:.6g}  {entry['index']}")
