"""What other engines execute is kept by all that it depends on; what waiting for memory costs comes later."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgedeploy.errors import OutputError
from edgedeploy.predicting.mca import Llvm
from edgedeploy.predicting.peers import Key, PeerResult, PeerResults
from edgedeploy.predicting.prediction import Executed, priced
from edgedeploy.predicting.record import MISSES
from edgedeploy.predicting.tools import Means
from edgedeploy.target.board import Board, load_board

KEY = Key("ncnn", "1.0", "network", "cortex-a72", "1, LLVM 19.1.7")
EXECUTED = Executed("libncnn.so", 0, 1000, 500.0, 2.5, 3, 400, 0, dict.fromkeys(MISSES, 2.0))
RESULT = PeerResult(KEY, "mobilenet", "0" * 64, (EXECUTED,), 1e-6)


def test_what_was_added_is_found_by_a_later_run(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "results.jsonl"
    PeerResults(path).add(RESULT)
    unable = PeerResult(replace(KEY, engine="mnn"), "mobilenet", "1" * 64, left_out="its converter ended with code 1")
    PeerResults(path).add(unable)
    later = PeerResults(path)
    assert later.find(KEY) == RESULT
    assert later.find(unable.key) == unable


@pytest.mark.parametrize("field", ["engine", "version", "network", "core", "predictor"])
def test_what_depends_on_something_else_is_not_found(tmp_path: Path, field: str) -> None:
    results = PeerResults(tmp_path / "results.jsonl")
    results.add(RESULT)
    assert results.find(replace(KEY, **{field: "another"})) is None


def test_a_line_that_was_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    PeerResults(path).add(RESULT)
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    assert PeerResults(path).find(KEY) == RESULT
    PeerResults(path).add(replace(RESULT, key=replace(KEY, engine="mnn")))
    assert PeerResults(path).find(replace(KEY, engine="mnn"))


def test_tidying_keeps_the_newest_of_each(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = PeerResults(path)
    newer = replace(RESULT, key=replace(KEY, version="2.0"))
    other = replace(RESULT, key=replace(KEY, core="cortex-a76"))
    for each in (RESULT, newer, other):
        results.add(each)
    results.tidy()
    assert len(path.read_text().splitlines()) == 2
    later = PeerResults(path)
    assert [later.find(each.key) for each in (RESULT, newer, other)] == [None, newer, other]


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        PeerResults(tmp_path / "file" / "results.jsonl").add(RESULT)


def test_costs_of_memory_are_the_profiles_of_today(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    PeerResults(path).add(RESULT)
    result = PeerResults(path).find(KEY)
    board = load_board("rpi4")
    cheap, dear = (
        priced(result.executed, board, board.core_model.model_copy(update={"memory": memory})).cycles
        for memory in (board.core_model.memory, board.core_model.memory.model_copy(update={"foreseen": 99}))
    )
    assert cheap.core == dear.core == EXECUTED.core
    assert dear.memory - cheap.memory == pytest.approx(2 * (99 - board.core_model.memory.foreseen))


def key_of(
    file: Path, inputs: Mapping[str, np.ndarray], board: Board, version: str = "1.0", llvm: str = "19.1.7"
) -> Key:
    assert board.core_model
    return Key.of("ncnn", version, file, inputs, board, Means(board.core_model, Llvm("mca", "mc", llvm)))


def test_a_key_changes_with_all_that_a_result_depends_on(tmp_path: Path) -> None:
    file, other = tmp_path / "net.onnx", tmp_path / "other.onnx"
    file.write_bytes(b"network")
    other.write_bytes(b"network of other weights")
    inputs = {"data": np.zeros((1, 3), np.float32)}
    rpi4, rpi5 = load_board("rpi4"), load_board("rpi5")
    small = rpi4.model_copy(update={"cache": rpi4.cache.model_copy(update={"l2_kib": 512})})
    keys = [
        key_of(file, inputs, rpi4),
        key_of(other, inputs, rpi4),
        key_of(file, {"data": np.ones((1, 3), np.float32)}, rpi4),
        key_of(file, {"data": np.zeros((3, 1), np.float32)}, rpi4),
        key_of(file, inputs, rpi5),
        key_of(file, inputs, small),
        key_of(file, inputs, rpi4, version="1.1"),
        key_of(file, inputs, rpi4, llvm="20.1.0"),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == key_of(file, dict(inputs), load_board("rpi4"))
