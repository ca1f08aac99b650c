"""OpenVINO for the shortest time of one inference: its CPU plugin, or its GPU plugin where a device is wanted."""

from __future__ import annotations

from edgedeploy.benchmarking.engines.engine import CPU, Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """Compile the network in single precision, one stream over all threads.

    On a graphics processor a request copies its tensors there and back.
    """
    import openvino

    core = openvino.Core()
    settings: dict[str, object] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    plugin, device = "CPU", CPU
    if task.accelerated and any(name.startswith("GPU") for name in core.available_devices):
        plugin, device = "GPU", str(core.get_property("GPU", "FULL_DEVICE_NAME"))
    else:
        settings["INFERENCE_NUM_THREADS"] = task.threads
    network = core.read_model(task.file)
    request = core.compile_model(network, plugin, settings).create_infer_request()
    for name, array in task.inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run() -> None:
        # Without arguments and results: those would be copied.
        request.start_async()
        request.wait()

    return Loaded(run, lambda: {name: request.get_tensor(name).data.copy() for name in task.outputs}, device)


ENGINE = Engine("openvino", module="openvino", distribution="openvino", suffix=".onnx", load=load)
