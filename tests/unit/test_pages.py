"""Pages for users: commands do what they show, messages are the code's, figures those that were measured."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import readme_chart
from conftest import ROOT, Command
from support.pages import BOARD, follow, lay_out, run, snippets

from edgedeploy.base.text import significant
from edgedeploy.frontends.formats import formats
from edgedeploy.vision.image import read_image

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
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
    readme = README.split("\n## How fast\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in readme.splitlines() if row.startswith("|")]
    for column, row in enumerate(rows[2:]):
        for name, ratio in zip(rows[0][1:], row[1:], strict=True):
            wanted = shown["the quickest of them for each network" if name == "the quickest of them" else name][column]
            assert ratio == ("" if wanted == "not measured" else wanted), name


def test_the_highlights_of_the_readme_say_what_was_measured_and_predicted() -> None:
    [fast] = [line for line in README.replace("\n  ", " ").splitlines() if line.startswith("- **Fast**")]
    means = re.findall(r"^\| geometric mean.*", (DOCS / "performance.md").read_text(encoding="utf-8"), re.MULTILINE)
    predicted = [
        next(cell for cell in line.split("|")[::-1] if cell.strip()).strip()
        for line in (DOCS / "predictions.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| geometric mean of ")
    ]
    assert len(predicted) == 5
    assert re.findall(r"\d\.\d\d", fast) == [means[0].split("|")[-2].strip(), *predicted]


def test_the_chart_of_the_readme_shows_what_the_pages_say() -> None:
    drawn = set(re.findall(r"<title>(.+?)</title>", readme_chart.CHART.read_text(encoding="utf-8")))
    assert drawn == {
        f"{engine}, {' '.join(machine.split())}: {significant(ratio)}"
        for machine, bars in readme_chart.groups().items()
        for engine, ratio in bars.items()
    }, "run python benchmarks/readme_chart.py"
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    for engine, shown in (("onnxruntime", "onnxruntime"), ("OpenVINO", "openvino"), ("ncnn", "ncnn"), ("MNN", "mnn")):
        [ratio] = re.findall(rf"^\| {engine} \| ([\d.]+) \|", page, re.MULTILINE)
        times = next(iter(readme_chart.groups().values()))[shown]
        assert 1 / times == pytest.approx(float(ratio), abs=0.006), engine


def test_the_picture_of_a_terminal_shows_a_run_of_the_commands_of_its_script() -> None:
    picture = (DOCS / "pictures" / "terminal.svg").read_text(encoding="utf-8")
    said = html.unescape(re.sub(r"<[^>]*>", "\n", picture)).replace("\xa0", " ")
    script = (ROOT / "scripts" / "terminal_picture.py").read_text(encoding="utf-8")
    commands = [line.replace("{BOARD}", "rpi4") for line in re.findall(r'f"(edgedeploy .*)",$', script, re.MULTILINE)]
    assert len(commands) == 3
    for command in commands:
        assert f"$ {command}\n" in said
    for part in ("dist/rpi4/retinaface.tar.gz", "self-test on the board", "pushed (", "detected face num: 4"):
        assert part in said
    assert "@font-face" not in picture  # it loads nothing


def test_the_readme_begins_with_what_one_gains_and_how_to_try_it() -> None:
    assert len(README.splitlines()) <= 120
    first = ["**Compile ", "](docs/charts/engines.svg)", "](docs/pictures/terminal.svg)", "- **Fast**", "git clone "]
    parts = [*first, "make demo", "make test", "pip install", "## Formats and boards", "## Pages", "glibc"]
    places = [README.index(part) for part in parts]
    assert places == sorted(places)
    assert len(re.findall(r"^- \*\*", README.partition("## ")[0], re.MULTILINE)) == 5


def test_the_readme_lists_every_format_that_is_read() -> None:
    table = README.partition("## Formats and boards\n")[2].partition("\n## ")[0]
    rows = [
        re.sub(r"[\[\]`]|\(.*?\)", "", line.split("|")[1]).strip()
        for line in table.splitlines()[3:]
        if line.startswith("|")
    ]
    names = {each.name for each in formats()}
    assert len(rows) == len(names)
    for name in names:
        assert any(name in row for row in rows), name


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


# The page of the API.

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
