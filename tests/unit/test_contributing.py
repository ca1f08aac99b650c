"""The how-tos of CONTRIBUTING.md, followed word for word in a copy of the tree."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from support.commands import printed
from toy_backend import KIND

DATA = ("boards", "toolchains", "triples", "demos", "models", "agent")
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
HOW_TOS: dict[str, str] = dict(re.findall(r"^## Add an? (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
BY_DATA = {"architecture"}  # shown by what is in the tree


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
            elif title not in BY_DATA:
                assert not path.exists(), f"{name} is there already"
                path.write_text(content, encoding="utf-8")
    return tree


def run(tree: Path, check: str) -> None:
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
    run(tree, "check_records")


@pytest.mark.compiles
def test_operators_templates_and_formats_of_the_how_tos_build_networks(tree: Path) -> None:
    run(tree, "check_networks")
