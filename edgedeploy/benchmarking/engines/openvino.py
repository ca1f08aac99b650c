"""OpenVINO for the shortest time of one inference: its CPU plugin, or its GPU plugin if networks run on a device."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from edgedeploy.benchmarking.engines.engine import CPU, Engine, Loaded, Once, Profile, Task, profile_of


def load(task: Task) -> Loaded:
    """Compile the network in single precision, one stream over all threads.

    On a graphics processor a request copies its tensors there and back.
    """
    request, device = _request(task)
    return Loaded(
        partial(_run, request), lambda: {name: request.get_tensor(name).data.copy() for name in task.outputs}, device
    )


def profile(task: Task, count: int) -> Profile:
    """The time of each node, by the plugin's own performance counters."""
    request, _ = _request(task, {"PERF_COUNT": True})

    def once() -> Once:
        _run(request)
        return {
            node.node_name: (node.node_type, node.real_time / timedelta(milliseconds=1))
            for node in request.profiling_info
            if node.real_time
        }

    return profile_of(once, count)


def _run(request: Any) -> None:
    # Without arguments and results: those would be copied.
    request.start_async()
    request.wait()


def _request(task: Task, more: dict[str, object] | None = None) -> tuple[Any, str]:
    """A request with its inputs in place, and the device."""
    import openvino

    core = openvino.Core()
    settings: dict[str, object] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    plugin, device = "CPU", CPU
    if task.accelerated and any(name.startswith("GPU") for name in core.available_devices):
        plugin, device = "GPU", str(core.get_property("GPU", "FULL_DEVICE_NAME"))
    else:
        settings["INFERENCE_NUM_THREADS"] = task.threads
    network = core.read_model(task.file)
    request = core.compile_model(network, plugin, settings | (more or {})).create_infer_request()
    for name, array in task.inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
    return request, device


ENGINE = Engine("openvino", module="openvino", distribution="openvino", suffix=".onnx", load=load, profile=profile)
