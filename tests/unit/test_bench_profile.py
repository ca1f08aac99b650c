"""`bench --profile`: the time by function of edgedeploy, and by operator of each engine that tells."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnxruntime
import pytest
from conftest import Command
from support.networks import tiny

from edgedeploy.runtime.profile import FunctionProfile, profile_of_operators, profile_table

pytestmark = pytest.mark.compiles


def nodes_of_onnxruntime(path: Path, folder: Path) -> dict[str, str]:
    """What onnxruntime's own rewriting makes of a network: operators by name of their nodes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "rewritten.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])  # noqa: TID251
    return {node.name: node.op_type for node in onnx.load(folder / "rewritten.onnx").graph.node}


def test_each_engine_says_what_its_functions_take(command: Command, tmp_path: Path) -> None:
    path, page = tiny(tmp_path / "net.onnx"), tmp_path / "page.html"
    against = ["--against", "onnxruntime,openvino,mnn,ncnn", "--rounds", "1", "--profile"]
    code, out, err = command("bench", path, *against, "--json", "--report", page)
    assert code == 0, err
    rows = {row["engine"]: row for row in json.loads(out)["rows"]}
    assert "functions" not in rows.get("ncnn", {})
    functions = {name: row["functions"] for name, row in rows.items() if name != "ncnn"}
    assert {"edgedeploy", "onnxruntime"} <= set(functions)
    for found in functions.values():
        assert sum(each["share"] for each in found) == pytest.approx(1)
        assert [each["ms"] for each in found] == sorted((each["ms"] for each in found), reverse=True)
    assert any(each.get("operations") and each["bytes"] for each in functions["edgedeploy"])
    told = {each["function"]: each["type"] for each in functions["onnxruntime"]}
    assert told == nodes_of_onnxruntime(path, tmp_path)
    assert all(f"unctions of {name} on net" in page.read_text() for name in functions)


def test_the_terminal_shows_the_longest_and_the_sum_of_the_others() -> None:
    times = {f"layer {index}": ("Conv", [float(index), float(index)]) for index in range(1, 6)}
    found = profile_of_operators(times | {"unused": ("Add", [])})
    assert [each.function for each in found[:2]] == ["layer 5", "layer 4"]
    assert profile_table(found, 2) == [
        ["function", "type", "ms", "share"],
        ["layer 5", "Conv", "5.000", "33.3%"],
        ["layer 4", "Conv", "4.000", "26.7%"],
        ["3 others", "", "6.000", "40.0%"],
    ]
    assert profile_table([FunctionProfile("\x1b[31m", 1.0, 1.0, None, None, None)])[1][0] != "\x1b[31m"
