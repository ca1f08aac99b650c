"""The documentation, held against the code, commands and measurements; the how-tos of CONTRIBUTING.md, followed."""

import ast
import html
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import readme_chart
import yaml
from conftest import ROOT, Command
from pydantic import BaseModel
from support.commands import printed
from support.pages import BOARD, follow, lay_out, run, snippets
from toy_backend import KIND

from edgedeploy import errors
from edgedeploy.audio.spec import SoundDemo
from edgedeploy.base.text import significant
from edgedeploy.demo.spec import Demo
from edgedeploy.frontends.formats import formats
from edgedeploy.frontends.tengine.translation import CONVERTERS
from edgedeploy.target.board import Board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.target.toolchain import Toolchain
from edgedeploy.vision.image import read_image
from edgedeploy.zoo.entry import ZooFile, ZooModel

DOCS = ROOT / "docs"

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "document_commands.py"))
COMMANDS: dict[str, Any] = dict(SCRIPT["commands"]())


def _subclasses(kind: type) -> list[type]:
    return [below for child in kind.__subclasses__() for below in (child, *_subclasses(child))]


def _fields(model: type[BaseModel], seen: tuple[type[BaseModel], ...] = ()) -> set[str]:
    """The names of a record's fields and of those of the records in it."""
    names: set[str] = set()
    for name, field in model.model_fields.items() if model not in seen else ():
        names.add(name)
        waiting = [field.annotation]
        while waiting:
            kind = waiting.pop()
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                names |= _fields(kind, (*seen, model))
            waiting.extend(get_args(kind))
    return names


def text_of(page: str, section: str | None = None) -> str:
    """A page, or the part of it below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.split(f"\n## {section}\n")[1].split("\n## ")[0] if section else text


def test_the_page_of_commands_is_up_to_date() -> None:
    assert text_of("commands.md") == SCRIPT["page"](), "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_text_an_example_of_itself_and_a_text_for_each_option(name: str) -> None:
    command = COMMANDS[name]
    assert re.match(r"[A-Z].*\.", command.help)
    assert hasattr(command, "commands") or re.search(rf"Example(s?: |s:\n(.*\n)*  ){name}\b", command.help)
    for parameter in command.params:
        if parameter.opts[0].startswith("-"):
            assert parameter.help, parameter.name


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text_of("exit-codes.md"), re.MULTILINE)
    every = [errors.EdgedeployError, *_subclasses(errors.EdgedeployError)]
    kinds = [kind for kind in every if kind.__module__.startswith("edgedeploy.")]  # other tests import scripts
    assert {(int(code), name) for code, name in rows} == {(kind.exit_code, kind.__name__) for kind in kinds}


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("Boards", Board),
        ("Boards", OpenCL),
        ("Toolchains", Toolchain),
        ("Models", ZooModel),
        ("Demos", Demo),
        ("Demos on sounds", SoundDemo),
    ],
)
def test_every_field_of_a_data_file_is_documented(section: str, model: type[BaseModel]) -> None:
    documented = set(re.findall(r"`(\w+)`", text_of("data-files.md", section)))
    described_above = _fields(ZooFile) if model in (Demo, SoundDemo) else set()
    assert not _fields(model) - documented - described_above


def test_every_operator_of_tengines_is_documented() -> None:
    listed = text_of("tengine.md").split("Supported operators:\n\n")[1]
    assert listed.rstrip(".\n").replace("\n", " ").split(", ") == sorted(CONVERTERS)


@pytest.mark.parametrize("section", ["Boards", "Demos"])
def test_the_overview_lists_every_board_and_demo(section: str) -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|", text_of("overview.md", section), re.MULTILINE)
    assert rows == sorted(path.stem for path in (ROOT / section.lower()).rglob("*.yaml"))


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_folders_import_only_what_is_below_them_in_the_architecture() -> None:
    rows = re.findall(r"^\| `(\w+(?:\.py|/))` \|", text_of("architecture.md"), re.MULTILINE)
    package = ROOT / "edgedeploy"
    folders = {f"{path.parent.relative_to(package).parts[0]}/" for path in package.glob("*/**/*.py")}
    assert sorted(rows) == sorted({*folders, "building.py", "build_key.py"})
    floors = {row.rstrip("/").removesuffix(".py"): floor for floor, row in enumerate(rows)}
    upwards = []
    for path in package.rglob("*.py"):
        place = path.relative_to(package).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("edgedeploy"):
                parts = [*node.module.split("."), node.names[0].name]
                if floors.get(parts[1], len(rows)) < floors.get(place, -1):
                    upwards.append(f"{path.relative_to(package)} imports {node.module}")
    assert upwards == []


# Phrases that read as translated; docs/style.md has more on how we write.
STILTED = re.compile(
    r"(?<!there )(?<!There )\bis no (?!longer|more)\w|\banew\b|\bif need be\b|\bbe they\b|\b(can|to) be had\b"
    r"|\bat hand\b|[Nn]one if there is none|\b[Ww]hatever\b"
)


@pytest.mark.parametrize("folder", ["", "agent", "benchmarks", "demos", "docs", "edgedeploy", "examples", "scripts"])
def test_texts_are_plain_english(folder: str) -> None:
    pattern = f"{folder}/**/*" if folder else "*.md"
    texts = [path for path in ROOT.glob(pattern) if path.suffix in {".cc", ".h", ".hpp", ".md", ".py", ".sh", ".yaml"}]
    lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts
        if "compat" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if STILTED.search(line)
    ]
    assert not lines, "\n".join(lines)


# Pages for users: commands do what they show, messages are the code's, figures those that were measured.

README = (ROOT / "README.md").read_text(encoding="utf-8")
# Messages of others.
OF_OTHERS = {"Illegal instruction", "GLIBC_2.xx not found", "wrong ELF class", "--image 0 --board rpi4"}


def test_what_a_page_does_not_show_as_it_is_printed_is_found(tmp_path: Path) -> None:
    page = "```console\n$ echo one two\none ...\n$ echo three\nfour\n$ printf 'a\\nb\\nc'\na\n...\nc\n```\n"
    [difference] = follow(page, tmp_path, {})
    assert difference == "$ echo three\nshown:\nfour\n\nprinted:\nthree\n"


@pytest.mark.compiles
def test_the_tutorial_can_be_followed(command: Command) -> None:
    page = text_of("tutorial.md").split("\n## On a Raspberry Pi\n")[0]
    variables = {"TORCH": str(ROOT / "examples" / "torch"), "PYTHONPATH": str(ROOT)}
    assert follow(page, Path.cwd(), variables) == []
    drawn, shown = read_image(Path("seen.png")), read_image(DOCS / "pictures" / "shapes.jpg")
    assert np.abs(drawn.astype(int) - shown).mean() < 4


def test_messages_of_the_page_by_symptom_are_those_of_the_code() -> None:
    files = [path for part in ("edgedeploy", "agent") for path in (ROOT / part).rglob("*")]
    code = [path for path in files if path.suffix in (".py", ".cc")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in code)
    page = text_of("troubleshooting.md")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ") and "you see" not in line]
    assert len(rows) > 25
    quoted = {quote for row in rows for quote in re.findall("`([^`]+)`", row)} - OF_OTHERS
    for quote in quoted:
        for part in re.split(r"\s*\.\.\.\s*", quote):
            assert part in text, quote


def test_the_ratios_of_the_page_on_choosing_are_those_that_were_measured() -> None:
    page = text_of("choosing.md")
    names = {"onnxruntime": "onnxruntime", "OpenVINO": "openvino", "ncnn": "ncnn", "MNN": "mnn", "LiteRT": "litert"}
    names["the quickest of them for each network"] = "ratio to the best"
    shown = {
        name: [cell.strip() for cell in cells.split("|")[:2]]
        for name, cells in re.findall(r"^\| ([\w ]+) \|((?: [\w. ]+ \|){2})$", page, re.MULTILINE)
        if name in names
    }
    assert shown.keys() == names.keys()
    for column, source in enumerate(("performance.md", "quantised_performance.md")):
        text = text_of(source)
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
    means = re.findall(r"^\| geometric mean.*", text_of("performance.md"), re.MULTILINE)
    predicted = [
        next(cell for cell in line.split("|")[::-1] if cell.strip()).strip()
        for line in text_of("predictions.md").splitlines()
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
    page = text_of("choosing.md")
    for engine, shown in (("onnxruntime", "onnxruntime"), ("OpenVINO", "openvino"), ("ncnn", "ncnn"), ("MNN", "mnn")):
        [ratio] = re.findall(rf"^\| {engine} \| ([\d.]+) \|", page, re.MULTILINE)
        times = next(iter(readme_chart.groups().values()))[shown]
        assert 1 / times == pytest.approx(float(ratio), abs=0.006), engine


def test_the_picture_of_a_terminal_shows_a_run_of_the_commands_of_its_script() -> None:
    picture = text_of("pictures/terminal.svg")
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

API = DOCS / "api.md"


@pytest.mark.compiles
def test_the_page_of_the_api_runs_from_top_to_bottom(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    names = lay_out(Path.cwd(), ROOT / "models")
    run(API, [part for part in snippets(API) if BOARD not in part[1]], names)
    assert "\n3 0.99" in capsys.readouterr().out
    assert Path("seen.png").is_file()
    assert {"small.tar.gz", "net-int8.onnx"} <= {path.name for path in Path.cwd().iterdir()}


def test_the_page_names_all_that_is_public() -> None:
    import edgedeploy as ed

    text = text_of("api.md")
    reference = set(re.findall(r"^::: edgedeploy\.(\w+)$", text, re.MULTILINE))
    assert reference | {"EdgedeployError", "Progress", "__version__"} == set(ed.__all__)
    assert "ed.EdgedeployError" in text
    assert "ed.Progress" in text


# The how-tos of CONTRIBUTING.md, followed word for word in a copy of the tree.

DATA = ("boards", "toolchains", "triples", "demos", "models", "agent")
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
HOW_TOS: dict[str, str] = dict(re.findall(r"^## Add an? (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def touched(text: str) -> set[str]:
    """The files that a how-to names."""
    [line] = re.findall(r"^Touches: (.*)\.$", text, re.M)
    return set(re.findall(r"`([^`]+)`", line))


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Language, path and content of the files and changes in a how-to."""
    return re.findall(r"^```(\w+)\n(?:#|---) (\S+)\n(.*?)^```$", text, re.M | re.S)


def change(path: Path, diff: str) -> None:
    """Apply a diff whose places are found by their lines."""
    text = path.read_text(encoding="utf-8")
    for above, found, below in re.findall(r"((?:^\+.*\n)*)((?:^[- ].*\n)+)((?:^\+.*\n)*)", diff, re.M):
        old = re.sub("^.", "", found, flags=re.M)
        assert text.count(old) == 1, f"{path}: {old}"
        kept = "".join(line for line in found.splitlines(keepends=True) if line.startswith(" "))
        text = text.replace(old, re.sub("^.", "", above + kept + below, flags=re.M))
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which all how-tos were followed."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "edgedeploy", tree / "edgedeploy", ignore=shutil.ignore_patterns("__pycache__"))
    for name in DATA:
        shutil.copytree(ROOT / name, tree / name)
    for title, text in HOW_TOS.items():
        for language, name, content in blocks(text):
            path = tree / name
            if language == "diff":
                change(path, content)
            elif title != "architecture":  # which is shown by what is in the tree
                assert not path.exists(), f"{name} is there already"
                path.write_text(content, encoding="utf-8")
    return tree


def run_in_copy(tree: Path, check: str) -> None:
    """Run a function of `support.how_tos` with the copy."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{ROOT / 'tests'}"}
    printed(sys.executable, "-c", f"from support.how_tos import {check}; {check}()", cwd=tree, env=environment)


def test_there_is_a_how_to_for_each_kind_of_addition() -> None:
    assert list(HOW_TOS) == ["operator", "template", "board", "architecture", "decoder", "format", "backend"]


@pytest.mark.parametrize("title", HOW_TOS)
def test_a_how_to_names_the_files_that_it_touches_and_no_other(title: str, tree: Path) -> None:
    named = touched(HOW_TOS[title])
    changed = {name for _, name, _ in blocks(HOW_TOS[title])}
    assert changed
    assert changed <= named
    # What is not spelled out are rows of tables in pages, or files that are there to be read.
    assert all(name.endswith(".md") or (ROOT / name).is_file() for name in named - changed)
    assert all((tree / name).is_file() or (ROOT / name).is_file() for name in named)


def test_the_architecture_of_the_page_is_the_one_in_the_tree_and_only_there() -> None:
    [(_, name, content)] = blocks(HOW_TOS["architecture"])
    there = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert yaml.safe_load(content).items() <= there.items()
    known = touched(HOW_TOS["architecture"])
    folders = [ROOT / each for each in ("edgedeploy", "scripts", "benchmarks", *DATA)]
    suffixes = {".py", ".cc", ".h", ".c", ".sh", ".yaml"}
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes]
    assert len(files) > 300
    naming = [path for path in files if re.search("riscv|rv64|lp64|U74", path.read_text(encoding="utf-8"))]
    assert {str(path.relative_to(ROOT)) for path in naming} < known


def test_the_example_of_a_backend_is_its_folder_and_the_line_in_the_page(tree: Path) -> None:
    folder = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "toy_backend").glob("*.py")}
    assert touched(HOW_TOS["backend"]) - folder == {"edgedeploy/target/devices.py"}
    assert folder < touched(HOW_TOS["backend"])
    [(name, path)] = KIND.items()
    assert f'"{name}": "{path}"' in HOW_TOS["backend"]


def test_boards_decoders_and_backends_of_the_how_tos_are_known(tree: Path) -> None:
    run_in_copy(tree, "check_records")


@pytest.mark.compiles
def test_operators_templates_and_formats_of_the_how_tos_build_networks(tree: Path) -> None:
    run_in_copy(tree, "check_networks")
