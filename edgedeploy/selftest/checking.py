"""Makes a package's self-test, and runs it before the package is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.errors import ModelError, NumericalError, last_line
from edgedeploy.package.manifest import Manifest, SelfTest
from edgedeploy.selftest.comparison import check_outputs
from edgedeploy.selftest.inputs import random_inputs
from edgedeploy.selftest.tolerance import tolerance_of

if TYPE_CHECKING:
    from edgedeploy.board import Board
    from edgedeploy.frontends.network import Network


def self_test(network: Network, board: Board) -> tuple[SelfTest, dict[str, np.ndarray]]:
    """Inputs, and what another program makes of them, as members of the package.

    Raises:
        ModelError: that program cannot run the network.
    """
    tensors = random_inputs(network)
    try:
        expected = network.reference(tensors)
    except Exception as error:
        raise ModelError(f"{network.reference_name} cannot run {network.file}", why=last_line(error)) from error
    members: dict[str, np.ndarray] = {}
    for index, spec in enumerate(network.inputs):
        members[f"selftest/input-{index}.bin"] = tensors[spec.name]
    for index, spec in enumerate(network.outputs):
        members[f"selftest/output-{index}.bin"] = np.ascontiguousarray(expected[spec.name])
    relative, absolute = tolerance_of(network, tensors, expected, board)
    test = SelfTest(
        inputs=[name for name in members if "input" in name],
        outputs=[name for name in members if "output" in name],
        relative=relative,
        absolute=absolute,
        reference=network.reference_name,
    )
    return test, members


def check(manifest: Manifest, library: bytes, members: dict[str, np.ndarray]) -> float:
    """Run a package's self-test in this process.

    Returns:
        The largest difference from the reference, as a fraction of the tolerance.

    Raises:
        NumericalError: it exceeds the tolerance.
    """
    from edgedeploy.runtime.session import Session

    test = manifest.selftest
    inputs = {spec.name: members[name] for spec, name in zip(manifest.inputs, test.inputs, strict=True)}
    wanted = {spec.name: members[name] for spec, name in zip(manifest.outputs, test.outputs, strict=True)}
    fractions = check_outputs(Session(manifest, library).run(inputs), wanted, test)
    name, worst = max(fractions.items(), key=lambda pair: pair[1])
    if worst > 1:
        raise NumericalError(
            f"the code for {manifest.model} gives other outputs than {test.reference}",
            why=f"output {name!r} differs by {worst:.3g} times what is allowed "
            f"({test.relative:g} of its largest value)",
        )
    return worst
