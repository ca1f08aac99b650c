"""OpenVINO's CPU plugin, for the shortest time of one inference."""

from __future__ import annotations

from edgedeploy.bench.engines.engine import Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """Compile the network in single precision, one stream over all threads."""
    import openvino

    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": task.threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    network = core.read_model(task.file)
    request = core.compile_model(network, "CPU", settings).create_infer_request()
    for name, array in task.inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run() -> None:
        # Without arguments and results: those would be copied.
        request.start_async()
        request.wait()

    return Loaded(run, lambda: {name: request.get_tensor(name).data.copy() for name in task.outputs})


ENGINE = Engine("openvino", module="openvino", distribution="openvino", suffix=".onnx", load=load)
