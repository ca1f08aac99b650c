"""The library for programs of users' own in tests: written once for each board, and what is compiled with it."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import ROOT
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection

from edgedeploy.agent import edgedeploy_runtime as library
from edgedeploy.agent.build import OLDEST_GLIBC
from edgedeploy.agent.library import write_library
from edgedeploy.demo.program import Detector
from edgedeploy.target.board import load_board
from edgedeploy.target.toolchain import c_compiler, cxx_compiler
from edgedeploy.vision.image import read_image
from support.commands import printed

EXAMPLES = ROOT / "examples"

Making = Callable[..., library.Network]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    write_library(load_board("local"), folder)
    return folder


@pytest.fixture(scope="module")
def network(written: Path) -> Making:
    class Network(library.Network):
        @staticmethod
        def _library_path() -> Path:
            return written / "lib" / library.LIBRARY_NAME

    return Network


def exported(shared: Path) -> list[str]:
    """The symbols that a shared library defines for others, with their versions: `ed_run@EDGEDEPLOY_1`."""
    with shared.open("rb") as stream:
        elf = ELFFile(stream)
        names, found = {}, []
        sections = list(elf.iter_sections())
        [definitions] = [section for section in sections if isinstance(section, GNUVerDefSection)]
        [versions] = [section for section in sections if isinstance(section, GNUVerSymSection)]
        for version, auxiliaries in definitions.iter_versions():
            names[version["vd_ndx"]] = next(iter(auxiliaries)).name
        for place, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            index = versions.get_symbol(place)["ndx"]
            if symbol["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS") and symbol.name:
                version = names[index & 0x7FFF] if isinstance(index, int) else index
                found.append(f"{symbol.name}@{version}")
    return sorted(found)


def declarations(header: Path) -> list[str]:
    """What a header declares: its text without comments and directives, one declaration in a line."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    text = re.sub(r'^#.*$|^extern "C" \{$|^\}$', "", text, flags=re.MULTILINE)
    text = re.sub(r"\s+", " ", text).replace("ED_API ", "")
    parts = re.findall(r"[^;{]*(?:\{[^}]*\}[^;]*)?;", text)
    return [part.strip() for part in parts]


# What the header's types are laid out like, in words: a pointer's size; of those that have others too, what each takes.
LAYOUT = """
#include <edgedeploy.h>
#include <stdio.h>
#define FIELD(type, name) printf(#type "." #name " %zu\\n", offsetof(type, name) / sizeof(void*))
#define BYTES(type, name) printf(#type "." #name " takes %zu bytes\\n", sizeof(((type*)0)->name))
#define WORDS(type, name) printf(#type "." #name " takes %zu words\\n", sizeof(((type*)0)->name) / sizeof(void*))
int main(void) {
  FIELD(ed_tensor, name); FIELD(ed_tensor, dtype); FIELD(ed_tensor, layout); FIELD(ed_tensor, shape);
  FIELD(ed_tensor, rank); FIELD(ed_tensor, bytes);
  printf("ed_tensor %zu\\n", sizeof(ed_tensor) / sizeof(void*));
  printf("ed_status %zu bytes\\n", sizeof(ed_status));
  WORDS(ed_image, pixels); BYTES(ed_image, width); BYTES(ed_image, height); WORDS(ed_image, stride);
  BYTES(ed_image, format);
  WORDS(ed_detection, label); BYTES(ed_detection, class_id); BYTES(ed_detection, score); WORDS(ed_detection, box);
  WORDS(ed_detection, corners); WORDS(ed_detection, points); WORDS(ed_detection, point_scores);
  WORDS(ed_detection, depths);
  WORDS(ed_detection, point_count); WORDS(ed_detection, mask); WORDS(ed_detection, mask_count);
  WORDS(ed_detection, surface);
  return 0;
}
"""


def compiled(
    sources: Sequence[Path | str],
    program: Path,
    folder: Path,
    *,
    board: str,
    toolchain: str = "zig",
    how: str = "shared",
) -> Path:
    # As the agent: zig has its C++ library for this glibc, stripped.
    glibc = {"glibc": OLDEST_GLIBC} if toolchain == "zig" else {}
    target = load_board(board).overridden({"toolchain": toolchain, **glibc})
    suffixes = {source.suffix for source in sources}
    driver = cxx_compiler(target) if how == "static" or ".cc" in suffixes else c_compiler(target)
    lib = folder / "lib"
    linked = ["-ledgedeploy"] if how == "shared" else [str(lib / "libedgedeploy.a"), "-ldl", "-lpthread", "-lm"]
    language = ["-x", "c"] if suffixes == {".c"} else ["-x", "c++", "-std=c++14"]
    flags = ["-O1", "-s", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}", f"-L{lib}", f"-Wl,-rpath,{lib}"]
    printed(*driver.command, *flags, *language, *sources, "-x", "none", *linked, "-o", program)
    return program


def said(command: Sequence[object], stdin: bytes = b"") -> list[str]:
    done = subprocess.run([str(word) for word in command], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def digit_image(folder: Path) -> Path:
    image = folder / "digit.pgm"
    assert cv2.imwrite(str(image), cv2.imread(str(ROOT / "models" / "digit.png"), cv2.IMREAD_GRAYSCALE))
    return image


def assert_as_python_says(lines: Sequence[str], package: Path, image: Path) -> None:
    """Hold what an example prints of an image against what the package's demo says of it."""
    wanted = Detector(package).detect(read_image(image))
    assert wanted
    assert len(lines) == len(wanted)
    for line, found in zip(lines, wanted, strict=True):
        score = [] if found.score is None else [found.score]
        places = [*(found.box or ()), *np.ravel(found.points)]
        label, *numbers = re.sub(r"[][()]", "", line).rsplit(" ", len(score) + len(places))
        assert label == found.label
        np.testing.assert_allclose([float(number) for number in numbers[: len(score)]], score, atol=1e-5)
        np.testing.assert_allclose([float(number) for number in numbers[len(score) :]], places, atol=0.02)
