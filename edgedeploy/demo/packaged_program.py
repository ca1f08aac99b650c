"""A demo of a package alone: one network that says itself how it is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.demo.packaged import look_of
from edgedeploy.demo.program import DemoSession, demo_image
from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.package.archive import read_manifest
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.opening import Place, opened


@dataclass(frozen=True)
class PackagedProgram:
    """A demo as `demo.program.Program` is one, of a package.

    Attributes:
        package: the archive.
    """

    package: Path

    def image(self, progress: Progress = SILENT) -> Path:
        """The image of the zoo's demo of this network."""
        model = read_manifest(self.package).model
        for name in DEMOS.names():
            if DEMOS.load(name).model == model:
                return demo_image(name, progress)
        raise InputError(f"{self.package} comes with no image", hints=["name one: --image FILE"])

    @contextmanager
    def opened(
        self,
        place: Place,
        *,
        threads: int | None = None,
        options: ImportOptions = AS_THE_FILE_SAYS,
        progress: Progress = SILENT,
    ) -> Iterator[DemoSession]:
        """The network, ready where `place` says; nothing is left open in a package that `options` could say."""
        if options != AS_THE_FILE_SAYS:
            raise InputError(f"--weights and --set do not go with {self.package}", why="it is built already")
        manifest = read_manifest(self.package)
        look = look_of(manifest, self.package)
        fitted = look.fitted(manifest)
        with opened(self.package, place, threads, progress) as there:
            network = look.network(manifest, self.package, fitted, there.runner)
            weights = manifest.weights
            yield DemoSession(manifest.model, [network], place.board.name, there.machine, weights)
