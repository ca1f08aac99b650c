"""The documentation, held against the code."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import ROOT
from pydantic import BaseModel

from edgedeploy import errors
from edgedeploy.audio.spec import SoundDemo
from edgedeploy.demo.spec import Demo
from edgedeploy.frontends.tengine.translation import CONVERTERS
from edgedeploy.target.board import Board
from edgedeploy.target.opencl.profile import OpenCL
from edgedeploy.target.toolchain import Toolchain
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
    kinds = [errors.EdgedeployError, *_subclasses(errors.EdgedeployError)]
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
