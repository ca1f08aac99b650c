"""Predicting the time of a network on a board's core, without the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from edgedeploy.api.packages import AnyBoard, Package, resolved
from edgedeploy.base.files import is_file, is_folder
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.benchmarking.networks import candidates
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.package.archive import SUFFIX
from edgedeploy.package.manifest import MANIFEST_NAME, Manifest
from edgedeploy.predicting.peers import PeerPrediction, PeerResults, find_predictable_peers, predict_peers
from edgedeploy.predicting.prediction import Prediction, open_package, predict_package
from edgedeploy.predicting.tools import Means

NOT_MEASURED = "predicted, not measured"


@dataclass(frozen=True, repr=False)
class Predicted:
    """The predicted cycles of a network on a board's core."""

    manifest: Manifest  # of the package
    board: str
    threads: int
    means: Means  # the model and tools used
    prediction: Prediction  # the cycles, function by function
    peers: Sequence[PeerPrediction] = ()  # predictions of other engines

    @property
    def ms(self) -> float:
        """The time of one inference in milliseconds."""
        return self.prediction.ms

    def __repr__(self) -> str:
        return f"<edgedeploy.Predicted {self.manifest.model} on {self.board}: {self.ms:.2f} ms, {NOT_MEASURED}>"

    def to_dict(self) -> dict[str, Any]:
        """The object that `predict --json` prints."""
        prediction = self.prediction
        return {
            "network": self.manifest.model,
            "board": self.board,
            "threads": self.threads,
            "note": NOT_MEASURED,
            "model": self.means.name,
            "build_key": self.manifest.build_key,
            "clock_mhz": prediction.clock_mhz,
            "error": prediction.error,
            "sampling_error_cycles": prediction.core_error,
            **_as_dict(prediction),
            "functions": [
                {
                    "function": each.name,
                    "calls": each.calls,
                    "cycles": each.cycles.total,
                    "cycles_by_kind": each.cycles.by_kind(),
                    "sampling_error_cycles": each.core_error,
                    "instructions": each.instructions,
                    "float_products": each.floats,
                    "half_products": each.halves,
                    "integer_products": each.integers,
                    "products_per_cycle": each.products_per_cycle,
                    "of_peak": each.of_peak,
                }
                for each in prediction.functions
            ],
            **({"against": [_of_peer(each) for each in self.peers]} if self.peers else {}),
        }


def predict(
    network: str | PathLike[str] | Package,
    board: AnyBoard,
    *,
    threads: int = 1,
    against: str | None = None,
    shapes: Shapes | None = None,
    options: ImportOptions = AS_THE_FILE_SAYS,
    progress: Progress = SILENT,
) -> Predicted:
    """Predict the cycles of a network on a board's core, function by function: the board's code runs under QEMU.

    Args:
        network: a name of the zoo, a network's file, or a package: its archive, or the folder it was unpacked into.
        board: the board, by name or by the path of a YAML file; its profile needs a `core_model`.
        threads: threads to use, at most the board's cores.
        against: other engines to predict, separated by commas.
        shapes: shapes of inputs that the network's file leaves open, by name.
        options: what else it leaves open.

    Raises:
        InputError: the board has fewer cores, or options do not go with a package.
        UnsupportedError: a required program is missing.
    """
    engines = find_predictable_peers(against) if against else []
    profile = resolved(board)
    if threads > profile.profile.cores:
        raise InputError(f"{profile.label} has {profile.profile.cores} cores, too few for {threads} threads")
    means = Means.of(profile.label, profile.profile)
    path, candidate = Path(network), None
    if fspath(network).endswith(SUFFIX) or (is_folder(path) and is_file(path / MANIFEST_NAME)):
        if shapes or options != AS_THE_FILE_SAYS:
            raise InputError("options about a network's file do not go with a package", why="it is built already")
        if engines:
            raise InputError("--against needs a network", why="other engines cannot read a package of edgedeploy")
    else:
        [candidate] = candidates([fspath(network)], profile, shapes, progress, options=options)
        path = candidate.prepared.package_path
    manifest, contents = open_package(path)
    prediction = predict_package(manifest, contents, profile.profile, means, progress, threads=threads)
    peers: Sequence[PeerPrediction] = []
    if engines and candidate:
        results = PeerResults.of_user()
        peers = predict_peers(engines, candidate, profile.profile, means, results, progress, threads=threads)
    return Predicted(manifest, profile.label, threads, means, prediction, peers)


def _as_dict(prediction: Prediction) -> dict[str, Any]:
    return {
        "ms": prediction.ms,
        "cycles": prediction.cycles.total,
        "cycles_by_kind": prediction.cycles.by_kind(),
        "instructions": prediction.instructions,
        "of_peak": prediction.of_peak,
        "missed_lines": dict(prediction.misses),
    }


def _of_peer(peer: PeerPrediction) -> dict[str, Any]:
    named: dict[str, Any] = {"engine": peer.engine, "version": peer.version, "wheel_sha256": peer.sha256}
    if peer.prediction is None:
        return {**named, "left_out": peer.left_out}
    return {**named, **_as_dict(peer.prediction), "difference_of_outputs": peer.difference}
