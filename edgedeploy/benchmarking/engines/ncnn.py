"""ncnn, on networks that its own converter `pnnx` makes of ONNX files."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines.conversion import convert as run_converter
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, NotHereError, Task


def load(task: Task) -> Loaded:
    """Convert the network and load it, in single precision throughout."""
    import ncnn

    parameters = task.converted or convert(task)
    network = ncnn.Net()
    network.opt.num_threads = task.threads
    network.opt.use_fp16_packed = False
    network.opt.use_fp16_storage = False
    network.opt.use_fp16_arithmetic = False
    if network.load_param(str(parameters)) or network.load_model(str(parameters.with_suffix(".bin"))):
        raise CannotRunError("ncnn cannot load what pnnx made of the network")
    # ncnn has no dimension for the batch.
    arrays = [array[0] if array.ndim > 1 and array.shape[0] == 1 else array for array in task.inputs.values()]
    inputs = [(f"in{index}", ncnn.Mat(np.ascontiguousarray(array)).clone()) for index, array in enumerate(arrays)]
    outputs = {name: f"out{index}" for index, name in enumerate(task.outputs)}
    last: dict[str, Any] = {}

    def run() -> None:
        with network.create_extractor() as extractor:
            for blob, matrix in inputs:
                extractor.input(blob, matrix)
            for name, blob in outputs.items():
                code, last[name] = extractor.extract(blob)
                if code:
                    raise CannotRunError(f"ncnn ends with code {code} at output {name!r}")

    return Loaded(run, lambda: {name: np.array(matrix) for name, matrix in last.items()})


def convert(task: Task) -> Path:
    """Have pnnx write the network; the parameters, beside which the weights lie."""
    if task.batch > 1:
        raise CannotRunError("it has no dimension for the batch")
    program = _converter()
    if program is None:
        raise NotHereError(
            "its converter pnnx is not here (`pip install --no-deps pnnx` gives it without PyTorch, "
            "which it does not need for ONNX)"
        )
    source = task.folder / "network.onnx"
    shutil.copyfile(task.file, source)  # pnnx writes beside the file that it reads
    parameters, weights = task.folder / "network.ncnn.param", task.folder / "network.ncnn.bin"
    # Everything that pnnx writes is named: some defaults go to the working folder.
    kinds = {"pnnxparam": "p", "pnnxbin": "b", "pnnxpy": "py", "pnnxonnx": "o", "ncnnpy": "npy"}
    others = [f"{option}={task.folder / 'unused'}.{suffix}" for option, suffix in kinds.items()]
    made = [f"ncnnparam={parameters}", f"ncnnbin={weights}"]
    run_converter([str(program), str(source), "fp16=0", *made, *others], task.folder, (parameters, weights))
    return parameters


def _converter() -> Path | None:
    """The native program: inside pnnx's Python package, whose own start-up would import PyTorch, or on the path."""
    package = importlib.util.find_spec("pnnx")
    if package and package.origin and (program := Path(package.origin).with_name("pnnx")).is_file():
        return program
    found = shutil.which("pnnx")
    return Path(found) if found else None


ENGINE = Engine("ncnn", module="ncnn", distribution="ncnn", suffix=".onnx", load=load, convert=convert)
