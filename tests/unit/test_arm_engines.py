"""The tables of benchmarks/arm_engines.py say how networks compare, what is missing and why."""

from pathlib import Path

import pytest
from arm_engines_tables import BEGIN, BEGIN_OF_BYTES, BEGIN_OF_HALF, END, PUBLISHED, Row, page, tables
from cycles import NETWORKS
from published import NAMES as RUN_BY_NCNN

from edgedeploy.model.quantised import Half
from edgedeploy.predicting.peers import PeerPrediction
from edgedeploy.predicting.prediction import Executed, Prediction, priced
from edgedeploy.predicting.record import MISSES
from edgedeploy.target.board import load_board


def takes(cycles: float) -> Prediction:
    board = load_board("rpi4")
    executed = Executed("all", 1, 1, cycles, 0.0, 0, 1, 0, dict.fromkeys(MISSES, 0.0))
    return priced([executed], board, board.core_model)


def peer(engine: str, cycles: float) -> PeerPrediction:
    return PeerPrediction(engine, "1.2.3", "0" * 64, takes(cycles), 0.0)


ROWS = [
    Row("mobilenet_v1", takes(100e6), [peer("ncnn", 125e6), peer("mnn", 80e6)]),
    Row("yunet", takes(10e6), [peer("ncnn", 20e6), PeerPrediction("litert", left_out="it reads .tflite files")]),
    Row("another", takes(10e6), [peer("ncnn", 5e6)]),
    Row("digits", takes(1e6), [PeerPrediction("litert", left_out="it reads .tflite files")]),
]


def cells(text: str, network: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"| {network} ")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_has_the_cycles_of_others_divided_by_ours() -> None:
    title = cells(tables({"rpi4": ROWS}, 1), "network")
    row = dict(zip(title, cells(tables({"rpi4": ROWS}, 1), "mobilenet_v1"), strict=True))
    assert (row["ncnn"], row["mnn"], row["litert"], row["edgedeploy / best"]) == ("1.25", "0.80", "", "1.25")
    assert row["edgedeploy, M cycles"] == "100.0"
    assert row["ms"] == "55.6"


def test_published_times_stand_beside_those_of_ncnn() -> None:
    for threads in (1, 4):
        row = cells(tables({"rpi4": ROWS}, threads), "mobilenet_v1")
        assert row[-2:] == ["69.4", f"{PUBLISHED['mobilenet']['rpi4'][threads]:.1f}"]
    assert cells(tables({"rpi4": ROWS}, 1), "yunet")[-2:] == ["11.1", ""]
    assert cells(tables({"rpi5": ROWS}, 4), "mobilenet_v1")[-1] == ""


def test_the_mean_is_that_of_development_networks_which_another_engine_runs() -> None:
    mean = cells(tables({"rpi4": ROWS}, 1), "geometric mean")
    assert mean[0] == "geometric mean of 2 development networks"
    assert f"{(1.25 * 0.5) ** 0.5:.2f}" in mean


def test_networks_of_bytes_stand_beside_themselves_in_single() -> None:
    rows = [
        Row("mobilenet_v1-int8", takes(50e6), [peer("onnxruntime", 100e6)], in_single=takes(100e6)),
        Row("mobilenet_v2_quant", takes(20e6), [peer("litert", 25e6)]),
    ]
    text = tables({"rpi4": rows}, 1)
    assert cells(text, "network")[-2:] == ["edgedeploy / best", "/ in single"]
    assert cells(text, "mobilenet_v1-int8")[-2:] == ["0.50", "0.50"]
    assert cells(text, "mobilenet_v2_quant")[-2:] == ["0.80", ""]
    assert cells(text, "geometric mean of 2 files")[-2:] == [f"{(0.5 * 0.8) ** 0.5:.2f}", ""]


def test_networks_in_half_precision_stand_beside_others_in_half_and_themselves_in_single() -> None:
    half = Half(layers=28, single=[], judged_by="pictures", expected=0.004, errors={"prob": 0.003}, tested=0.0)
    rows = [Row("mobilenet_v1", takes(20e6), [peer("ncnn-half", 25e6)], in_single=takes(40e6), half=half)]
    text = tables({"rpi5": rows}, 1)
    row = dict(zip(cells(text, "network"), cells(text, "mobilenet_v1"), strict=True))
    assert (row["ncnn-half"], row["edgedeploy / best"], row["/ in single"]) == ("1.25", "0.80", "0.50")
    assert (row["layers in half"], row["error"]) == ("28 of 28", "0.0040")
    assert (row["ncnn-half predicted, ms"], row["published, ms"]) == ("13.9", "20.3")


def test_who_is_left_out_is_said_once_with_the_reason() -> None:
    text = tables({"rpi4": ROWS, "rpi5": ROWS[1:2]}, 1)
    assert "- litert: it reads .tflite files: yunet (rpi4), digits (rpi4), yunet (rpi5)" in text
    assert "ncnn 1.2.3, mnn 1.2.3" in text


def test_a_page_keeps_all_that_is_not_the_tables() -> None:
    written = page(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert written == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert page(written, "newer") == written.replace("new", "newer")
    with pytest.raises(ValueError, match="lacks"):
        page("a page without marks", "new")


def test_the_page_of_predictions_has_a_place_for_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "predictions.md").read_text(encoding="utf-8")
    for begin in (BEGIN, BEGIN_OF_BYTES, BEGIN_OF_HALF):
        assert page(text, "the tables", begin).count("the tables") == text.count("the tables") + 1


def test_published_times_name_development_networks() -> None:
    assert {each["network"] for each in PUBLISHED.values() if "network" in each} < NETWORKS.keys()
    assert "yolo-fastest-1.1" not in RUN_BY_NCNN
    assert all({1, 4} == PUBLISHED[name]["rpi4"].keys() for name in PUBLISHED)
