"""Pages for users: commands do what they show, messages are the code's, figures those that were measured."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Command
from support.consoles import follow

from edgedeploy.vision.image import read_image

DOCS = ROOT / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
BOARDS_PART = "\n## On a Raspberry Pi\n"

# Messages of others.
OF_OTHERS = {"Illegal instruction", "GLIBC_2.xx not found", "wrong ELF class", "--image 0 --board rpi4"}


def test_what_a_page_does_not_show_as_it_is_printed_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo one two\none ...\n$ echo three\nfour\n$ printf 'a\\nb\\nc'\na\n...\nc\n```\n"
    [difference] = follow(page, tmp_path, {})
    assert difference == "$ echo three\nshown:\nfour\n\nprinted:\nthree\n"


@pytest.mark.compiles
def test_the_tutorial_can_be_followed(command: Command) -> None:
    page = TUTORIAL.split(BOARDS_PART)[0]
    variables = {"TORCH": str(ROOT / "examples" / "torch"), "PYTHONPATH": str(ROOT)}
    assert follow(page, Path.cwd(), variables) == []
    drawn, shown = read_image(Path("seen.png")), read_image(DOCS / "pictures" / "shapes.jpg")
    assert np.abs(drawn.astype(int) - shown).mean() < 4


def test_messages_of_the_page_by_symptom_are_those_of_the_code() -> None:
    files = [path for part in ("edgedeploy", "agent") for path in (ROOT / part).rglob("*")]
    code = [path for path in files if path.suffix in (".py", ".cc")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in code)
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ") and "you see" not in line]
    assert len(rows) > 25
    quoted = {quote for row in rows for quote in re.findall("`([^`]+)`", row)} - OF_OTHERS
    for quote in quoted:
        for part in re.split(r"\s*\.\.\.\s*", quote):
            assert part in text, quote


def test_the_ratios_of_the_page_on_choosing_are_those_that_were_measured() -> None:
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    names = {"onnxruntime": "onnxruntime", "OpenVINO": "openvino", "ncnn": "ncnn", "MNN": "mnn", "LiteRT": "litert"}
    names["the quickest of them for each network"] = "ratio to the best"
    shown = {
        name: [cell.strip() for cell in cells.split("|")[:2]]
        for name, cells in re.findall(r"^\| ([\w ]+) \|((?: [\w. ]+ \|){2})$", page, re.MULTILINE)
        if name in names
    }
    assert shown.keys() == names.keys()
    for column, source in enumerate(("performance.md", "quantised_performance.md")):
        text = (DOCS / source).read_text(encoding="utf-8")
        titles = next(line for line in text.splitlines() if line.startswith("| model | edgedeploy ms")).split("|")
        means = next(line for line in text.splitlines() if line.startswith("| geometric mean")).split("|")
        measured = {title.split(" ms")[0].strip(): mean.strip() for title, mean in zip(titles, means, strict=True)}
        for name, engine in names.items():
            assert shown[name][column] == measured.get(engine, "not measured"), (name, source)
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## How fast\n")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in readme.splitlines() if line.startswith("|")
    ]
    for column, row in enumerate(rows[2:]):
        for name, ratio in zip(rows[0][1:], row[1:], strict=True):
            wanted = shown["the quickest of them for each network" if name == "the quickest of them" else name][column]
            assert ratio == ("" if wanted == "not measured" else wanted), name


@pytest.mark.slow
def test_the_site_has_every_page_and_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason="make docs-site installs it")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md") if path.name != "README.md"}
    assert {page for page in pages if not (tmp_path / "site" / page).is_file()} == set()
    assert "edgedeploy.connect" in (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    for page in (tmp_path / "site").rglob("*.html"):  # it is read without a network
        loaded = re.findall(r'<(?:script|link)[^>]* (?:src|href)="(https?:[^"]*)"', page.read_text(encoding="utf-8"))
        assert loaded == [], page
