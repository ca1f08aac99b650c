"""The Python in the pages does what they say."""

import re
from pathlib import Path

import pytest
from conftest import ROOT, Command
from support.snippets import BOARD, lay_out, run, snippets

API = ROOT / "docs" / "api.md"


@pytest.mark.compiles
def test_the_page_of_the_api_runs_from_top_to_bottom(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    names = lay_out(Path.cwd(), ROOT / "models")
    run(API, [part for part in snippets(API) if BOARD not in part[1]], names)
    assert "\n3 0.99" in capsys.readouterr().out
    assert Path("seen.png").is_file()
    assert {"small.tar.gz", "net-int8.onnx"} <= {path.name for path in Path.cwd().iterdir()}


def test_the_page_names_all_that_is_public() -> None:
    import edgedeploy as ed

    text = API.read_text(encoding="utf-8")
    reference = set(re.findall(r"^::: edgedeploy\.(\w+)$", text, re.MULTILINE))
    assert reference | {"EdgedeployError", "Progress", "__version__"} == set(ed.__all__)
    assert "ed.EdgedeployError" in text
    assert "ed.Progress" in text
