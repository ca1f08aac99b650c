"""The programs that tests find: those of a bare Debian machine with the packages that this project names.

`PATH` is a folder of links to them, so that a test which needs anything else fails on every machine. A program that
only some machines have is listed in `OPTIONAL`. Where there is no dpkg, `PATH` stays as it is.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

# Debian packages that no target of make installs: tests skip where their programs are missing, and name them.
# What these depend on is not permitted: cmake would bring procps.
OPTIONAL = {
    "busybox": "scripts that boards run, in the shell that small systems have",
    "chromium": "the live page in a browser",
    "chromium-driver": "the live page in a browser",
    "clang": "a compiler that the user names to link with",
    "cmake": "the CMake files that edgedeploy writes",
    "ffmpeg": "RTSP streams from a server",
    "g++-aarch64-linux-gnu": "Debian's cross compilers",
    "g++-arm-linux-gnueabihf": "Debian's cross compilers",
    "gcc-aarch64-linux-gnu": "Debian's cross compilers",
    "gcc-arm-linux-gnueabihf": "Debian's cross compilers",
    "lld": "a linker that the user names",
    "llvm": "predicted cycles of loops",
    "pkgconf": "the pkg-config file that edgedeploy writes",
    "systemd": "the service's unit files, checked and run by systemd",
}

# The PATH that the tests were started with.
OUTER = "EDGEDEPLOY_TESTS_OUTER_PATH"


def pytest_configure(config: pytest.Config) -> None:
    """Replace PATH, before test modules look for programs; processes that the tests start inherit it."""
    if OUTER in os.environ or shutil.which("dpkg-query") is None:
        return
    outer = os.environ["PATH"]
    folder = Path(tempfile.mkdtemp(prefix="edgedeploy-programs-"))
    folder.chmod(0o755)  # some tests start programs as another user
    for name, program in permitted(outer).items():
        (folder / name).symlink_to(program)
    os.environ |= {OUTER: outer, "PATH": str(folder)}

    def restore() -> None:
        os.environ["PATH"] = os.environ.pop(OUTER)
        shutil.rmtree(folder)

    config.add_cleanup(restore)


def installed_but_hidden(program: str) -> bool:
    """Whether this machine has the program, in none of the packages that tests may rely on."""
    return shutil.which(program) is None and shutil.which(program, path=os.environ.get(OUTER, "")) is not None


def permitted(path: str) -> dict[str, Path]:
    """By name, the programs of the folders in `path` that belong to one of the packages, or are a link to one."""
    fresh = re.search(r"^packages=(\S+)$", (SCRIPTS / "fresh_machine.sh").read_text(), re.MULTILINE)
    listed = _said(str(SCRIPTS / "system_packages.sh"), "--list").split()
    packages = installed([*fresh[1].split(","), *listed], OPTIONAL)
    files = {os.path.realpath(file) for file in _said("dpkg-query", "-L", *packages).splitlines() if "bin/" in file}
    found: dict[str, Path] = {}
    for folder in map(Path, path.split(os.pathsep)):
        for program in folder.glob("*"):
            if program.name not in found and program.is_file() and os.path.realpath(program) in files:
                found[program.name] = program
    return found


def installed(names: Iterable[str], alone: Iterable[str]) -> list[str]:
    """Installed packages: what every Debian has and `names`, both with all that they depend on, and `alone`."""
    fields = "${binary:Package}\t${Package}, ${Provides}\t${Essential} ${Priority}\t${Depends}, ${Pre-Depends}\n"
    needs, providers, wanted = dict[str, str](), dict[str, list[str]](), list[str]()
    for line in _said("dpkg-query", "-W", "-f", fields).splitlines():
        package, provided, standing, needs[package] = line.split("\t")
        for name in _names(provided):
            providers.setdefault(name, []).append(package)
        if standing.startswith("yes") or standing.endswith("required"):
            wanted.append(package)
    wanted += [package for name in names for package in providers.get(name, [])]
    taken: set[str] = set()
    while wanted:
        if (package := wanted.pop()) not in taken:
            taken.add(package)
            wanted += [each for name in _names(needs[package]) for each in providers.get(name, [])]
    return sorted(taken | {package for name in alone for package in providers.get(name, [])})


def _names(relations: str) -> list[str]:
    """The packages that a field such as Depends names, without their versions and architectures."""
    return re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]+)", relations)


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
