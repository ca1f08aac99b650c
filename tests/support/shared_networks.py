"""The ONNX networks of the development material, which tests compile."""

from __future__ import annotations

from pathlib import Path

import onnx
from conftest import SHARED

FILES = sorted((SHARED / "models").rglob("*.onnx"))

# Shapes of inputs for networks that leave them open, by file name.
SHAPES = {"retinaface_mnet25_dyn.onnx": {"data": [1, 3, 240, 320]}}


def is_quantised(path: Path) -> bool:
    """Whether a network computes with quantised values."""
    return any("QuantizeLinear" in node.op_type for node in onnx.load(path, load_external_data=False).graph.node)
