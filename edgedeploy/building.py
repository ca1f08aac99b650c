"""Builds packages: network and board in, archive out. Packages are cached by build key."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edgedeploy.agent.build import agent_for, built_agent
from edgedeploy.base.cache import FolderCache
from edgedeploy.base.files import is_file, replacing, sha256_of, write_text
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.build_key import build_key, differences, versions
from edgedeploy.errors import OutputError, PackageError, UnsupportedError, cause_of
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.model import quantised
from edgedeploy.model.metadata import OWN
from edgedeploy.model.tail.program import content_of
from edgedeploy.package.abi import misfits, read_abi
from edgedeploy.package.archive import (
    SUFFIX,
    WORK_NAME,
    describe,
    read_manifest,
    read_package,
    weight_members,
    write_package,
    written_work,
)
from edgedeploy.package.entry import Entry, TailMember
from edgedeploy.package.manifest import LIBRARY_NAME, MAXIMUM_ENTRIES, TAIL_NAME, Check, Manifest, packageable
from edgedeploy.package.usage import Usage
from edgedeploy.records.best import NO_RECORDS, chosen_records, tuned_by
from edgedeploy.records.database import Records
from edgedeploy.runtime.opening import Runner
from edgedeploy.selftest.checking import Checks, Draft, check, check_tail
from edgedeploy.selftest.inputs import bounded_inputs
from edgedeploy.selftest.precision import Example, Judge, check_precision, chooses, with_half
from edgedeploy.selftest.recording import recorded, self_test
from edgedeploy.selftest.tolerance import Recorded, error_limit
from edgedeploy.target.facts import Facts
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.target.toolchain import c_compiler
from edgedeploy.zoo.source import Source, find_source, note_weights

if TYPE_CHECKING:
    from edgedeploy.compile.configuration import Tuned
    from edgedeploy.compile.pipeline import Compiled
    from edgedeploy.model.network import Network
    from edgedeploy.target.board import Board

# Files that may be written next to a package, by kind: Relax and TensorIR, LLVM's intermediate code, assembly, and a
# folder with the module after each pass.
DUMPS = {"ir": ".ir.py", "ll": ".ll", "asm": ".s", "passes": ".passes"}

# The cache of packages, by build key; next to each package, how long its build took.
_PACKAGES = FolderCache("packages")
_SECONDS = "seconds.txt"


@dataclass(frozen=True)
class Built:
    """A package that was built."""

    path: Path
    manifest: Manifest
    # The largest difference from the reference as a fraction of the tolerance; None if it was not checked.
    error: float | None
    dumps: list[Path]  # files with intermediate code next to the archive
    # The compiler's result, for reports; None if an up-to-date package existed.
    compiled: Compiled | None = field(repr=False)
    # The compiler's passes in order, with the time of each in seconds.
    pass_times: list[tuple[str, float]] = field(repr=False)


@dataclass(frozen=True)
class Prepared:
    """A package that is ready to use; `build_s` is the time of its build in seconds, None if it was built elsewhere."""

    package_path: Path
    source: Source
    build_s: float | None = None

    @cached_property
    def manifest(self) -> Manifest:
        """The package's manifest."""
        return read_manifest(self.package_path)

    def open(self, threads: int | None = None) -> Runner:
        """The network, ready to run in this process."""
        from edgedeploy.runtime.session import Session

        return Session.open(self.package_path, threads)


class Referenced(NamedTuple):
    """An imported network with the reference's results, `cases` by name: the same for all builds of a source."""

    network: Network
    cases: Mapping[str, Recorded]
    usage: Usage | None = None

    @classmethod
    def of(cls, source: Source, progress: Progress = SILENT, use: Use | None = None) -> Referenced:
        """Import a network, for a use if one is known, and run its reference."""
        with progress.stage("import"):
            network, usage = use.of(source.read()) if use else (source.read(), None)
        with progress.stage("reference"):
            cases = recorded(network)
            check_tail(network, cases)
            return cls(network, cases, usage)


class Use(Protocol):
    """How a network is used, `demo.usage.Use`: packages know only what they record of it."""

    @property
    def usage(self) -> Usage:
        """The record in a package, for its key."""

    @property
    def asked(self) -> bool:
        """Whether the user asked for this use; a network that does not fit it is then refused."""

    def of(self, network: Network) -> tuple[Network, Usage | None]:
        """The network as in a package for this use, and the package's record of the use."""
        ...

    def image(self, progress: Progress) -> Path | None:
        """The image that a demo shows this network, if there is one."""

    def example(self, network: Network, image: Path) -> Example | None:
        """That image as a network takes it, and what it makes of it."""


@dataclass(frozen=True)
class Plan:
    """A package to build: everything that determines it is found, and nothing is built yet."""

    source: Source
    board: ResolvedBoard
    use: Use | None = None  # how the network is used, for the manifest
    # Tuning records, as `records.best.chosen_records` takes them, the board's own unless given; or a function that
    # gives the configuration of each function, for comparisons.
    tuning: str | Tuned | None = None
    disabled_passes: Collection[str] = ()  # names of compiler passes to leave out
    progress: Progress = SILENT  # is notified of each step
    judge: Judge | None = None  # judges the choice of layers in half precision, by the user's images

    @cached_property
    def records(self) -> Records | None:
        """The tuning records."""
        return chosen_records(NO_RECORDS if callable(self.tuning) else self.tuning, self.board, self.progress)

    @property
    def tuned(self) -> Tuned:
        """The configuration of each function, from the records or another source."""
        return self.tuning if callable(self.tuning) else tuned_by(self.records)

    @property
    def usage(self) -> Usage | None:
        """The record of the use."""
        return self.use.usage if self.use else None

    @cached_property
    def image(self) -> Path | None:
        """The demo's image, if it judges which layers are in half precision."""
        chosen = chooses(self.board.profile) and self.source.options.weights == "file"
        return self.use.image(self.progress) if self.use and chosen else None

    @cached_property
    def key(self) -> str:
        """The package's key."""
        judges = [self.judge.identity()] if self.judge else []
        judges += [sha256_of(self.image)] if self.image else []
        return build_key(self.source, self.board.profile, self.records, self.disabled_passes, self.usage, judges)

    @property
    def short_key(self) -> str:
        """The name of the package's folder in the cache."""
        return self.key[:16]

    @property
    def package(self) -> str:
        """The package's file name."""
        return self.default_output.name

    @property
    def cached(self) -> Path:
        """The package in the cache, which may not exist."""
        return _PACKAGES.path(self.short_key) / self.package

    @property
    def default_output(self) -> Path:
        """The package in the working folder's `dist`, which may not exist."""
        return default_output(self.source.name, self.board)

    def build(
        self,
        output: Path,
        *,
        referenced: Referenced | None = None,
        dumps: Collection[str] = (),
        checks: Checks = "all",
        make_agent: bool = False,
        reuse: bool = False,
    ) -> Built:
        """Build the package into the archive `output`, after comparing its outputs with the reference's.

        Args:
            referenced: the network and its reference's results, if they are known from another build.
            dumps: kinds of intermediate code to write next to the archive, of `DUMPS`.
            checks: `all`; `here` for checks on this machine itself, as boards test packages that they receive; or
                `none`.
            make_agent: whether to build the agent that a check under an emulator needs; otherwise that check is
                deferred until there is one.
            reuse: whether to take an up-to-date package, which was checked, from `output` or the cache; not with
                `dumps`.
        """
        if reuse and not dumps and (found := self._found(output, checks)):
            self.progress.note(f"{self.source.name} is not built again: nothing has changed since the last build")
            return found
        started = perf_counter()
        built = self._build(output, dumps, checks, referenced, make_agent=make_agent)
        seconds = perf_counter() - started

        def copy(folder: Path) -> None:
            shutil.copyfile(built.path, folder / self.package)
            _write_build_time(folder, seconds)

        if reuse and checks != "none":
            with suppress(OutputError):  # the cache is not writable
                self._cache(copy, f"caching {self.package}")
        return built

    def prepare(self) -> Prepared:
        """The up-to-date package, from `dist/<board>` or the cache, or a new one in the cache."""
        for path in (self.default_output, self.cached):
            if self._is_at(path, self.progress):
                return Prepared(path, self.source, _build_time(self.short_key))

        def make(folder: Path) -> None:
            started = perf_counter()
            # A package for another machine goes to its board next, which tests it before it does anything else with it.
            self._build(folder / self.package, (), "here")
            _write_build_time(folder, perf_counter() - started)

        self._cache(make, f"building {self.source.name} for {self.board.label}", self.progress)
        return Prepared(self.cached, self.source, _build_time(self.short_key))

    def _cache(self, fill: Callable[[Path], object], what: str, progress: Progress = SILENT) -> None:
        """Have `fill` write the package into its folder in the cache, unless it is there."""
        _PACKAGES.get(self.short_key, fill, what, progress, sound=lambda folder: self._is_at(folder / self.package))

    def _is_at(self, path: Path, progress: Progress | None = None) -> bool:
        """Whether this package is in a file; `progress` gets the reason if another one is there."""
        try:
            if not path.is_file():
                return False
            manifest = read_manifest(path)
            # A package without a use was built when none was asked for.
            asked = self.use is not None and self.use.asked
            if manifest.build_key == self.key and not (asked and manifest.usage is None):
                return True
            given = (self.source, self.board, self.records, self.disabled_passes, self.usage)
            why = "; ".join(differences(manifest, *given)) if progress else ""
        except (OSError, PackageError) as error:
            why = cause_of(error)
        if progress:
            progress.note(f"{path} is not used: {why}")
        return False

    def _found(self, output: Path, checks: Checks) -> Built | None:
        """An intact, up-to-date package, copied to `output` if it was in the cache."""
        for path in (output, self.cached):
            if not self._is_at(path):
                continue
            try:
                manifest, _ = read_package(path)
            except PackageError:
                continue
            if checks != "none" and manifest.checked.how == "no":
                continue
            if path != output:
                with replacing(output) as temporary:
                    shutil.copyfile(path, temporary)
            return Built(output, manifest, None, [], None, [])
        return None

    def _build(
        self,
        output: Path,
        dumps: Collection[str],
        checks: Checks,
        referenced: Referenced | None = None,
        *,
        make_agent: bool = False,
    ) -> Built:
        from edgedeploy.compile.output.codegen import link
        from edgedeploy.compile.output.entries import entry_name
        from edgedeploy.compile.output.explain import gigaflops, work_of
        from edgedeploy.compile.output.targets import check_target
        from edgedeploy.compile.passes.order import passes_for
        from edgedeploy.compile.passes.running import PassLog
        from edgedeploy.compile.pipeline import compile_entries

        source, board, records, progress = self.source, self.board.profile, self.records, self.progress
        check_target(board)
        check_precision(board)
        passes_for(board, self.disabled_passes)  # before the long work: names and packages that cannot be used
        linker = c_compiler(board)
        linker.check()
        with (
            replacing(output) as temporary,  # before the long work: an unwritable folder should not cost it
            packageable(source.name),
        ):
            sources = source.of_each_entry()
            if len(sources) > MAXIMUM_ENTRIES:
                raise UnsupportedError(
                    f"a package cannot hold {len(sources)} shapes", why=f"the maximum is {MAXIMUM_ENTRIES}"
                )
            entries = [referenced] if referenced else [Referenced.of(each, progress, self.use) for each in sources]
            network, cases, usage = entries[0]
            example = self.use.example(network, self.image) if self.use and usage and self.image else None
            network = with_half(
                network, board, cases, self.disabled_passes, progress, usage=usage, judge=self.judge, example=example
            )
            entries = [each._replace(network=replace(each.network, half=network.half)) for each in entries]
            limits = [(each, error_limit(each, board, its_cases.values())) for each, its_cases, _ in entries]
            contents: dict[str, bytes] = {}
            log = PassLog(_dump_path(output, "passes") if "passes" in dumps else None)
            log.write("imported", network.module)
            compiled = compile_entries(limits, board, progress, self.tuned, self.disabled_passes, log, at_load=True)
            records_of = [
                _entry(each, its_cases, board, entry_name(place), contents, exact=compiled.exact)
                for place, (each, its_cases, _) in enumerate(entries)
            ]
            if records and records.sha256:
                count = sum(entry.tuned for entry in compiled.functions.values())
                progress.note(
                    f"{count} of {len(compiled.functions)} functions are as tuned, by the records in {records.folder}"
                )
            with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
                library = Path(folder) / LIBRARY_NAME
                with progress.stage("link"):
                    link(compiled.code, library, board)
                contents[LIBRARY_NAME] = library.read_bytes()
                abi = read_abi(library, board)
            contents[WORK_NAME] = written_work(work_of(compiled, len(entries)))
            for reason in misfits(abi, Facts(glibc=board.glibc), "the board's profile"):
                progress.note(f"boards may refuse this package: {reason}; toolchain zig links for any glibc")
            transformed = weight_members(compiled.weights, contents)
            first, *further = records_of
            quantisation = quantised.recorded(network.metadata, quantised=network.quantised)
            manifest = Manifest(
                model=source.name,
                model_sha256=source.sha256[0],
                weights=source.options.weights,
                heads=list(network.heads),
                metadata={key: value for key, value in network.metadata.items() if key not in OWN},
                quantisation=quantisation,
                half=network.half,
                usage=usage,
                board=self.board.label,
                build_key=self.key,
                tuning_records=records.sha256 if records else None,
                disabled_passes=sorted(set(self.disabled_passes)),
                target=board.target(),
                opencl_device=board.accelerator.name if board.accelerator else None,
                threads=board.cores,
                versions=versions(source.format),
                linker=f"{linker.toolchain}: {linker.identity}",
                set_inputs=dict(source.options.values),
                inputs=first.inputs,
                outputs=first.outputs,
                tail=first.tail,
                further=further,
                abi=abi,
                memory=compiled.code.memory,
                selftest=first.selftest,
                checked=Check(how="no"),
                transformed=transformed,
                files=describe(contents),
            )
            draft = Draft(
                network, board, manifest, contents, cases, gigaflops(compiled), [entry[:2] for entry in entries[1:]]
            )
            agent = partial(agent_for, board, progress=progress) if make_agent else partial(built_agent, board)
            draft, checked, error = check(draft, checks, agent, progress)
            manifest = draft.manifest.model_copy(update={"checked": checked})
            with progress.stage("pack"):
                write_package(temporary, manifest, draft.contents)
        written = [_dump(compiled, output, kind) for kind in dumps]
        return Built(output, manifest, error, written, compiled, log.times)


def _entry(
    network: Network,
    cases: Mapping[str, Recorded],
    board: Board,
    function: str,
    contents: dict[str, bytes],
    *,
    exact: bool,
) -> Entry:
    """A manifest's entry of one network; the members that it names are added to `contents`."""
    prefix = "" if function == "main" else f"{function}-"
    exact = exact and network.is_reference_exact()
    test, members = self_test(network, board, cases, prefix, exact=exact)
    contents |= members
    tail = None
    if network.cut_off:
        tail = TailMember(file=prefix.replace("_", "-") + TAIL_NAME, outputs=network.cut_off.tail.outputs)
        contents[tail.file] = content_of(network.cut_off.tail.block)
    return Entry(function=function, inputs=bounded_inputs(network), outputs=network.outputs, tail=tail, selftest=test)


def build(
    source: Source,
    board: ResolvedBoard,
    output: Path,
    *,
    use: Use | None = None,
    tuning: str | None = None,
    checks: Checks = "all",
    progress: Progress = SILENT,
) -> Built:
    """Build one network for a board; arguments are those of `Plan` and `Plan.build`."""
    return Plan(source, board, use, tuning, progress=progress).build(output, checks=checks)


def prepare(
    model: str,
    board: ResolvedBoard,
    *,
    progress: Progress = SILENT,
    input_shapes: Shapes | None = None,
    batches: Sequence[int] = (),
    options: ImportOptions = AS_THE_FILE_SAYS,
    use: Use | None = None,
    tuning: str | None = None,
) -> Prepared:
    """The up-to-date package of a model for a board, as `Plan.prepare` finds or builds it.

    `batches` are sizes of the inputs' first dimension, each for its own entry point.
    """
    source = find_source(model, input_shapes, progress, options).with_further((), batches)
    note_weights(source, options, progress)
    return Plan(source, board, use, tuning, progress=progress).prepare()


def _write_build_time(folder: Path, seconds: float) -> None:
    (folder / _SECONDS).write_text(f"{seconds:.3f}\n", encoding="ascii")


def _build_time(short_key: str) -> float | None:
    with suppress(OSError, ValueError):
        return float((_PACKAGES.path(short_key) / _SECONDS).read_text(encoding="ascii"))
    return None


def default_output(model: str, board: ResolvedBoard) -> Path:
    """The default path of a model's package."""
    return Path("dist") / board.label / f"{model}{SUFFIX}"


def last_built_board() -> str | None:
    """The board of the newest package in this folder's `dist`, if any."""
    packages = [path for path in Path("dist").glob("*/*.tar.gz") if is_file(path)]
    newest = max(packages, key=lambda path: path.stat().st_mtime_ns, default=None)
    return newest.parent.name if newest else None


def _dump_path(package: Path, kind: str) -> Path:
    return package.with_name(package.name.removesuffix(SUFFIX) + DUMPS[kind])


def _dump(compiled: Compiled, package: Path, kind: str) -> Path:
    """Write one kind of intermediate code next to the package; that of passes was written while they ran."""
    path = _dump_path(package, kind)
    if kind == "passes":
        return path
    text = compiled.module.script() if kind == "ir" else compiled.code.inspect(kind)
    write_text(path, text)
    return path
