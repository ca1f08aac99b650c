"""LiteRT, once TensorFlow Lite, with its XNNPACK kernels."""

from __future__ import annotations

from edgedeploy.benchmarking.engines.engine import Engine, Loaded, Task


def load(task: Task) -> Loaded:
    """Make an interpreter; inputs and outputs of the file are taken in their order."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(task.file), num_threads=task.threads)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), task.inputs.values(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    places = [detail["index"] for detail in interpreter.get_output_details()]
    return Loaded(
        interpreter.invoke,
        lambda: {name: interpreter.get_tensor(place) for name, place in zip(task.outputs, places, strict=True)},
    )


ENGINE = Engine("litert", module="ai_edge_litert", distribution="ai-edge-litert", suffix=".tflite", load=load)
