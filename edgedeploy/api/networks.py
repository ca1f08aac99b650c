"""Networks that are ready to run, here or on a board, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from edgedeploy.api.packages import AnyBoard, AnyNetwork, AnyShapes, package_of, resolved
from edgedeploy.base.closing import Closing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.demo.program import Detector
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.manifest import Manifest
from edgedeploy.runtime.arrays import fill
from edgedeploy.runtime.opening import Opened, Place, Runner, opened
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.draw import draw, draw_enlarged
from edgedeploy.vision.image import image_of, write_image
from edgedeploy.vision.results import Detection

if TYPE_CHECKING:
    from edgedeploy.api.packages import Package
    from edgedeploy.vision.image import GivenImage


# The most results in a one-line summary.
_MOST_SHOWN = 5


@dataclass(frozen=True, repr=False)
class Detections(Sequence[Detection]):
    """The results for one image, best first, each a `Detection` with `label`, `score`, `box` and further attributes."""

    image: np.ndarray  # uint8, height x width x 3, channels B, G, R
    found: tuple[Detection, ...]  # in pixels of the image

    @overload
    def __getitem__(self, index: int) -> Detection: ...
    @overload
    def __getitem__(self, index: slice) -> Detections: ...
    def __getitem__(self, index: int | slice) -> Detection | Detections:
        if isinstance(index, slice):
            return Detections(self.image, self.found[index])
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        shown = ", ".join(map(_briefly, self.found[:_MOST_SHOWN]))
        more = f", {len(self) - _MOST_SHOWN} more" if len(self) > _MOST_SHOWN else ""
        return f"<edgedeploy.Detections of {len(self)}{': ' * bool(shown)}{shown}{more}>"

    def draw(self, image: GivenImage | None = None) -> np.ndarray:
        """The image with the results drawn in, uint8, height x width x 3, channels B, G, R.

        Args:
            image: another image of the same size to draw on, which is copied first.

        Raises:
            InputError: it is not an image.
        """
        return draw(self.image if image is None else image_of(image), list(self.found))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the image with the results drawn in, in the format of the suffix.

        Images whose longer side has less than 320 pixels are enlarged by a whole number.

        Raises:
            InputError, OutputError: the format is unknown, or the file cannot be written.
        """
        write_image(Path(path), draw_enlarged(self.image, self.found))

    def to_dict(self) -> list[dict[str, Any]]:
        """The results as `--json` prints them."""
        return [each.to_dict() for each in self.found]


def _briefly(found: Detection) -> str:
    score = "" if found.score is None else f" {found.score:.2f}"
    place = f" [{', '.join(f'{side:.0f}' for side in found.box)}]" if found.box else ""
    return f"{found.label}{score}{place}"


class Network(Closing):
    """A network that is ready to run, in this process or on a board; a context manager.

        network = ed.open("retinaface")
        outputs = network(array)                # outputs by name; or network({"data": array})
        faces = network.detect("party.jpg")     # decoded as in the network's demo

    Attributes:
        package: its package.
        threads: the number of threads.
        machine: the board in one line, or None for this machine.
    """

    def __init__(self, package: Package, network: Opened, closing: ExitStack) -> None:
        """Take an opened package; `closing` closes it."""
        self.package = package
        self.threads = network.runner.threads
        self.machine = network.machine
        self._opened: Opened | None = network
        self._closing = closing

    @property
    def manifest(self) -> Manifest:
        """The package's manifest."""
        return self.package.manifest

    @property
    def runner(self) -> Runner:
        """The runner, for inferences beyond these calls.

        Raises:
            InputError: the network was closed.
        """
        return self._network.runner

    @property
    def inputs(self) -> list[TensorSpec]:
        """The inputs, in the network's order, each with `name`, `shape` and `dtype`."""
        return self.runner.inputs

    @property
    def outputs(self) -> list[TensorSpec]:
        """The outputs in the same way; sizes that depend on data are -1."""
        return self.runner.outputs

    def __repr__(self) -> str:
        where = f" on {self.machine}" if self.machine else ""
        return f"<edgedeploy.Network {self.manifest.model}{where}>"

    def __call__(self, *arrays: np.ndarray | Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference.

        Args:
            arrays: one for each input, in the network's order; or one mapping from names of inputs to arrays. Shapes
                are the network's; dtypes convert to the network's if no kind of number is lost.

        Returns:
            The outputs by name, in the network's order.

        Raises:
            InputError: an array is missing, belongs to no input, or has a wrong shape or dtype; the message has both.
        """
        return self.runner.run(self._named(arrays))

    def run(self, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference on arrays by input name, like calling the network."""
        return self(tensors)

    def detect(self, image: GivenImage) -> Detections:
        """Detect what is in an image, with the preprocessing and decoding of the network's demo.

        Args:
            image: a path, an OpenCV array (uint8, height x width x 3, channels B, G, R), or a Pillow image.

        Raises:
            InputError: it is not an image, or the package does not define the preprocessing.
        """
        given = image_of(image)
        return Detections(given, tuple(self._detector.detect(given)))

    def time(
        self, *arrays: np.ndarray | Mapping[str, np.ndarray], repeat: int = 10, number: int = 1, warmup: int = 1
    ) -> Timing:
        """Measure inferences, without the transfer of tensors to a board and back.

        Args:
            arrays: as for the call; the same random values each time if there are none.
            repeat: the number of measurements.
            number: the number of inferences in each; a time is their mean.
            warmup: the number of inferences before the first.
        """
        tensors = self._named(arrays) if arrays else {spec.name: fill(spec, "random") for spec in self.inputs}
        return self.runner.fitting(tensors).measure(tensors, repeat=repeat, number=number, warmup=warmup)

    def memory(self) -> dict[str, int | None]:
        """The agent's current memory on the board, in bytes; empty for this machine."""
        agent_memory = self._network.agent_memory
        return agent_memory() if agent_memory else {}

    def to_dict(self) -> dict[str, Any]:
        """Its model, board, machine, threads, inputs and outputs."""
        specs = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            "model": self.manifest.model,
            "board": self.manifest.board,
            "machine": self.machine,
            "threads": self.threads,
            **{name: [spec.model_dump(exclude_none=True) for spec in each] for name, each in specs.items()},
        }

    def close(self) -> None:
        """Close it, on a board with its agent; it cannot be used afterwards."""
        self._opened = None
        self.__dict__.pop("_detector", None)
        self._closing.close()

    @property
    def _network(self) -> Opened:
        if self._opened is None:
            raise InputError(f"{self.manifest.model} was closed", hints=["open it again"])
        return self._opened

    @cached_property
    def _detector(self) -> Detector:
        return Detector(self.package.path, runner=self.runner)

    def _named(self, arrays: tuple[np.ndarray | Mapping[str, np.ndarray], ...]) -> Mapping[str, np.ndarray]:
        if len(arrays) == 1 and isinstance(arrays[0], Mapping):
            return arrays[0]
        names = [spec.name for spec in self.inputs]
        if len(arrays) != len(names):
            raise InputError(
                f"{self.manifest.model} takes {len(names)} arrays, not {len(arrays)}",
                why=f"its inputs: {', '.join(names)}",
            )
        return {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}


def open_network(
    network: AnyNetwork,
    *,
    board: AnyBoard = "local",
    host: str | None = None,
    virtual: bool | None = None,
    strict_host_key: bool = False,
    threads: int | None = None,
    shapes: AnyShapes | None = None,
    batches: Sequence[int] = (),
    options: ImportOptions = AS_THE_FILE_SAYS,
    demo: str | None = None,
    progress: Progress = SILENT,
) -> Network:
    """Open a network on this machine, or on a board over SSH, as a trial that is never in use.

    Args:
        network: a package, or a network to build unless it is up to date: a name of the zoo or a network's file.
        host: its address, as `USER@HOST`, if not the profile's; `local` for this machine.
        virtual: whether to use the profile's virtual board, and start it if it is not running; as configured if None.
        strict_host_key: whether to refuse boards with unknown host keys.
        threads: threads to use; as in the package unless given.
        shapes: shapes of inputs that the file leaves open, by name; several mappings create several entries.
        batches: sizes of the first dimension of every input, each for its own entry.
        options: what else the file leaves open.
        demo: the demo that defines preprocessing and decoding; the network's own unless given.
    """
    place = Place(resolved(board), host, virtual, strict_host_key)
    package = package_of(
        network, place.board, shapes=shapes, batches=batches, options=options, demo=demo, progress=progress
    )
    with ExitStack() as stack:
        running = stack.enter_context(opened(package.path, place, threads, progress))
        return Network(package, running, stack.pop_all())
