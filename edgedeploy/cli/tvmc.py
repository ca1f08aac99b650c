"""Translates command lines of tvmc.

tvmc was the command line of Apache TVM up to 0.19. Options of the same name and meaning are our own; for others, an
error shows the whole command in our terms.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

# Commands of tvmc and our names for them.
COMMANDS = {"compile": "build", "run": "run", "tune": "tune"}


@dataclass(frozen=True)
class Answer:
    """Our counterpart of a tvmc option: why it is missing, or what replaces it."""

    reason: str
    # Translates the value into words of a command line; by default, the option is left out.
    words: Callable[[str], list[str]] = field(default=lambda value: [])
    flag: bool = False


class Translation(NamedTuple):
    """A tvmc command line in our terms, with an explanation for each option that is missing."""

    command: str
    reasons: list[str]


def _shapes(value: str) -> list[str]:
    """`data:[1,3,224,224] mask:[1,8]` as an option for each input."""
    found = re.findall(r"([^\s:\[\]]+):\[([\d,\s-]*)\]", value)
    return [word for name, sizes in found for word in ("--input-shape", f"{name}:{re.sub(r'[ ]', '', sizes)}")]


def _target(value: str) -> list[str]:
    """`llvm -mtriple=... -mcpu=... -mattr=+a,+b -device=arm_cpu` as the options that override a board's profile."""
    words = value.replace("=", " ").split()
    stated = {name.lstrip("-"): argument for name, argument in pairwise(words) if name.startswith("-")}
    known = {"mtriple": "--mtriple", "mcpu": "--mcpu", "mattr": "--mattr"}
    return [f"{known[name]}={argument}" for name, argument in stated.items() if name in known]


def _dumps(value: str) -> list[str]:
    names = {"relay": "passes", "relax": "passes", "te": "ir", "tir": "ir", "ll": "ll", "asm": "asm"}
    kinds = dict.fromkeys(names[kind] for kind in value.split(",") if kind in names)
    return ["--dump", ",".join(kinds)] if kinds else []


_MODEL = {
    "--input-shapes": Answer("--input-shape is given for each input, as NAME:1,3,224,224", _shapes),
    "--model-format": Answer("formats are detected from content"),
    "--desired-layout": Answer("the compiler chooses layouts for the board"),
    "--desired-layout-ops": Answer("the compiler chooses layouts for the board"),
    "--target": Answer("a board's profile is the target: --board; --mtriple, --mcpu and --mattr override it", _target),
    "--target-host": Answer("a board's profile states its processor"),
}
_OVERRIDE = re.compile(r"--(mcpu|mattr|mtriple)=(.*)")
_TARGET_ATTRIBUTE = re.compile(r"--target-\w+-(mcpu|mattr|mtriple)")
_TRACKER = Answer("boards are reached over SSH: --board NAME --host USER@HOST")
_HARDWARE = Answer("the board's profile states its processor; see docs/adding-a-board.md")
_EXECUTOR = Answer("packages run on TVM's virtual machine; there is nothing to choose")

# The options that our command of a name does not have.
ANSWERS: dict[str, dict[str, Answer]] = {
    "build": {
        **_MODEL,
        "--dump-code": Answer("--dump writes ir, ll, asm and passes", _dumps),
        "--dump-offloads": Answer("--explain lists what each function became", lambda value: ["--explain"]),
        "--pass-config": Answer("passes have no settings; --disable-pass leaves one out, --list-passes names them"),
        "--disabled-pass": Answer("--disable-pass is given for each; passes have names of their own: --list-passes"),
        "--opt-level": Answer("all passes run, as at level 3; --disable-pass leaves out one"),
        "--output-format": Answer("packages have one format, an archive that the board's agent and `run` read"),
        "-f": Answer("packages have one format, an archive that the board's agent and `run` read"),
        "--module-name": Answer("a package has the name of its network's file"),
        "--executor": _EXECUTOR,
        "--runtime": _EXECUTOR,
        "--instruments": Answer("--print-pass-times shows what passes take", lambda value: ["--print-pass-times"]),
    },
    "run": {
        **{name: _MODEL[name] for name in ("--input-shapes", "--model-format")},
        "--end-to-end": Answer("times begin and end in the processor's memory anyway", flag=True),
        "--rpc-key": _TRACKER,
        "--rpc-tracker": _TRACKER,
        "--options": Answer("microcontrollers are not supported"),
        "--project-dir": Answer("microcontrollers are not supported"),
    },
    "tune": {
        **_MODEL,
        "--build-timeout": Answer("builds have no limit of their own; --timeout is that of measuring"),
        "--parallel": Answer("all processors build"),
        "--hostname": Answer("trackers are named by --rpc-tracker HOST:PORT"),
        "--port": Answer("trackers are named by --rpc-tracker HOST:PORT"),
        "--prior-records": Answer(
            "--tuning-records learns from earlier ones", lambda value: ["--tuning-records", value]
        ),
        "--enable-autoscheduler": Answer("there is one search, over the compiler's own configurations", flag=True),
        "--log-estimated-latency": Answer("at the end, the whole network is measured untuned and tuned", flag=True),
        "--include-simple-tasks": Answer("functions with something to choose are tuned, --tasks list", flag=True),
        **{
            f"--{name}": _HARDWARE
            for name in (
                *("cache-line-bytes", "num-cores", "vector-unit-bytes", "max-shared-memory-per-block"),
                *("max-local-memory-per-block", "max-threads-per-block", "max-vthread-extent", "warp-size"),
            )
        },
    },
}
# Replacements for tvmc's values that our option of the same name lacks.
VALUES = {"tune": {"--tuner": {"xgb-rank": "xgb", "xgb_knob": "xgb", "xgb_itervar": "xgb", "xgb_curve": "xgb"}}}


def answer_of(command: str, option: str) -> Answer | None:
    """Our counterpart of a tvmc option; None if it is not tvmc's, or our command has it."""
    if found := ANSWERS.get(command, {}).get(option):
        return found
    if command == "build" and (match := _TARGET_ATTRIBUTE.fullmatch(option)):
        return Answer(f"--{match[1]} overrides the board's profile", lambda value: [f"--{match[1]}={value}"])
    if command == "build" and option.startswith(("--target-", "--executor-", "--runtime-")):
        return Answer("a board's profile states its processor; packages run on TVM's virtual machine")
    return None


def translated(words: Sequence[str], own: Callable[[str], Collection[str]]) -> Translation | None:
    """A tvmc command line, without the program's name, in our terms; None if it has nothing of tvmc's.

    `own` gives the options of one of our commands by its name; it is slow, and called only if needed.
    """
    if not words:
        return None
    command = COMMANDS.get(words[0], words[0])
    reasons = [f"`tvmc {words[0]}` is `edgedeploy {command}`"] if command != words[0] else []
    if command not in ANSWERS:
        return None
    result, waiting = [command], list(words[1:])
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if command == "build" and name in ("-o", "--output") and (value or "".join(waiting[:1])).endswith(".tar"):
            waiting = waiting if equals else waiting[1:]
            reasons.append("packages are written as dist/BOARD/NETWORK.tar.gz; -o names another folder than dist/BOARD")
            continue
        found = answer_of(command, name)
        if found and name in own(command):
            found = None
        better = VALUES.get(command, {}).get(name, {})
        if found is None and not better:
            result.append(word)
            continue
        has_value = found is None or not found.flag
        if has_value and not equals:
            value = waiting.pop(0) if waiting else ""
        if found is None:
            if value in better:
                reasons.append(f"{name} {value} is {name} {better[value]}")
            result += [name, better.get(value, value)]
        else:
            reasons.append(f"{name}: {found.reason}")
            result += found.words(value)
    return Translation(f"edgedeploy {shlex.join(_with_board(result))}", reasons) if reasons else None


def _with_board(words: list[str]) -> list[str]:
    """Replace options that override a board's profile by the board that they mean, and options for the rest."""
    found = [_OVERRIDE.fullmatch(word) for word in words]
    stated = {match[1]: match[2] for match in found if match}
    if not stated or {"-b", "--board"} & set(words):
        return words
    from edgedeploy.base.catalog import names_in
    from edgedeploy.target.board import load_board
    from edgedeploy.target.triples import architecture_of

    boards = {name: board for name in names_in("boards") if not (board := load_board(name)).devices}
    family = architecture_of(stated["mtriple"]).name if "mtriple" in stated else None
    fitting = {name: board for name, board in boards.items() if family in (None, board.family)}
    same_cpu = [name for name, board in fitting.items() if board.cpu == stated.get("mcpu")]
    [name] = (same_cpu or (["local"] if "local" in fitting else [*fitting]) or ["local"])[:1]
    known = {"mcpu": boards[name].cpu}
    left = {option: value for option, value in stated.items() if value != known.get(option)}
    if name in fitting and boards[name].triple.endswith(stated.get("mtriple", "").rsplit("-", 1)[-1]):
        left.pop("mtriple", None)
    others = [word for word, match in zip(words, found, strict=True) if not match]
    board_option = ["--board", name] if name != "local" else []
    return [*others, *board_option, *(f"--{option}={value}" for option, value in left.items())]
