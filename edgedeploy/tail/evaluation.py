"""Runs a tail on what the compiled part of a network gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgedeploy.errors import PackageError, last_line
from edgedeploy.tail.operators import OPERATORS
from edgedeploy.tail.program import Block
from edgedeploy.tensors import Tensors, TensorSpec


@dataclass(frozen=True)
class Tail:
    """A tail that is ready to run.

    Attributes:
        block: what it does.
        outputs: of the network, in order; a size of -1 depends on the data.
    """

    block: Block
    outputs: list[TensorSpec]
    _constants: dict[int, dict[str, np.ndarray]] = field(default_factory=dict, compare=False, repr=False)

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """The network's outputs by name, at the lengths that the data give them.

        Args:
            tensors: the network's inputs and the outputs of its compiled part, by name.

        Raises:
            PackageError: a node does not suit its inputs, or an output is not what the package says.
        """
        with np.errstate(all="ignore"):
            arrays = self._run(self.block, dict(tensors))
        found = dict(zip((spec.name for spec in self.outputs), arrays, strict=True))
        for spec in self.outputs:
            if why := spec.misfit(found[spec.name]):
                raise PackageError(f"the package gives another output {spec.name!r} than its manifest says", why=why)
        return found

    def _run(self, block: Block, values: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        values |= self._constants_of(block)
        for node in block.nodes:
            inputs = [values[name] if name else None for name in node.inputs]
            try:
                if node.operator == "If":
                    made = self._run(node.branches[0 if _is_true(inputs[0]) else 1], dict(values))
                else:
                    returned = OPERATORS[node.operator](inputs, node.attributes)
                    made = [returned] if isinstance(returned, np.ndarray | np.generic) else returned
            except PackageError:
                raise
            except Exception as error:
                raise PackageError(
                    "the end of the network cannot be computed",
                    why=f"node {node.name!r}, {node.operator}: {last_line(error)}",
                ) from error
            values |= {name: np.asarray(array) for name, array in zip(node.outputs, made, strict=False) if name}
        return [values[name] for name in block.outputs]

    def _constants_of(self, block: Block) -> Mapping[str, np.ndarray]:
        if id(block) not in self._constants:
            self._constants[id(block)] = {name: each.array() for name, each in block.constants.items()}
        return self._constants[id(block)]


def _is_true(condition: np.ndarray | None) -> bool:
    if condition is None or condition.size != 1:
        raise ValueError("the condition is not one value")
    return bool(condition.reshape(-1)[0])
