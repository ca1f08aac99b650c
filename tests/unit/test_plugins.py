"""What other packages add by entry points: it works, and what does not is named and left out."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Command
from support.commands import printed, put
from support.wheels import distribution

from edgedeploy.base import plugins
from edgedeploy.base.catalog import Catalog
from edgedeploy.base.plugins import Group
from edgedeploy.demo.spec import DEMOS, Demo
from edgedeploy.errors import ConfigurationError
from edgedeploy.vision.decoder import kind_of
from edgedeploy.vision.decoders.yolo import Yolo

NUMBERS: Group[int] = Group("tests.numbers", "number", "int", lambda given: str(given) if type(given) is int else None)

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with numbers as entry points: their names, and Python expressions that give them."""

    def make(package: str, **given: str) -> None:
        site, module = tmp_path / package, f"{tmp_path.name.replace('-', '_')}_{package}"
        points = (f"{name.lstrip('_')} = {module}:{name}" for name in given)
        distribution(site, package, points=[f"[{NUMBERS.name}]", *points])
        (site / f"{module}.py").write_text("\n".join(f"{name} = {value}" for name, value in given.items()) + "\n")
        monkeypatch.syspath_prepend(site)

    return make


def test_what_packages_give_is_found_by_name(install: Install) -> None:
    install("second", _2="2")
    install("first", _1="1", _3="3")
    assert NUMBERS.load() == [1, 2, 3]
    assert NUMBERS.load(disabled=["2"]) == [1, 3]
    install("third", _1="1")
    with pytest.raises(ConfigurationError, match="has one of the same name"):
        NUMBERS.load()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"_1": "1 / 0"}, "ZeroDivisionError: division by zero"),
        ({"_1": "'one'"}, "is str, not int"),
        ({"_1": "2"}, "gives one of the name '2'"),
    ],
)
def test_what_cannot_be_used_is_named(given: dict[str, str], why: str, install: Install) -> None:
    install("broken", **given)
    with pytest.raises(ConfigurationError, match=f"the number '1' of broken 1.0 cannot be used.*{why}"):
        NUMBERS.load()


def test_an_unusable_one_does_not_hide_the_others(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("some", _1="1 / 0")
    install("others", _2="2")
    assert NUMBERS.sound() == [2]
    install("more", _4="4", _5="5")
    assert NUMBERS.sound(taken=["5"]) == [2, 4]
    assert "the number '1' of some 1.0 cannot be used" in caplog.text
    assert "the number '5' of more 1.0 cannot be used: there is one of the same name" in caplog.text


def test_a_decoder_says_its_kind() -> None:
    assert kind_of(Yolo) == "yolo"
    assert kind_of(Yolo.model_construct()) is None
    assert kind_of(Demo) is None


def test_data_files_of_packages_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    distribution(tmp_path, "mine", points=[f"[{plugins.DATA}]", "mine = mine"])
    for name in ("digits", "another"):
        put(folder / "demos" / f"{name}.yaml", "nothing: here\n")
    monkeypatch.syspath_prepend(tmp_path)
    catalog = Catalog("demo", "demos", Demo)
    assert catalog.find("another").parent == folder / "demos"
    assert catalog.find("digits") == DEMOS.find("digits") != folder / "demos" / "digits.yaml"
    assert "mine" not in sys.modules


@pytest.mark.compiles
def test_the_example_adds_a_format_a_decoder_an_engine_and_a_demo(command: Command, tmp_path: Path) -> None:
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    site = tmp_path / "site"
    printed(sys.executable, "-m", "pip", "install", *options, "--target", site, ROOT / "examples/plugin")
    ask = """
import json
import edgedeploy as ed
from edgedeploy.demo.program import Program
[lamp] = ed.open("brightest-24x32").detect(Program.of("brightest").image())
report = ed.bench(["brightest-24x32"], against=["onnx-reference"], rounds=1)
print(json.dumps([lamp.to_dict(), report.engines]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    lamp, engines = json.loads(printed(sys.executable, "-c", ask, env=environment))
    x1, y1, x2, y2 = lamp["box"]
    assert 107 < x1 < x2 < 118  # a disc of radius 4 around (112, 62)
    assert 57 < y1 < y2 < 68
    assert engines == ["edgedeploy", "onnx-reference"]
