"""Runs a tail on what the compiled part of a network gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from edgedeploy.errors import PackageError, last_line
from edgedeploy.tail.operators import OPERATORS
from edgedeploy.tail.program import Block
from edgedeploy.tensors import Tensors, TensorSpec

# Bytes of all values that are kept at a time: beyond that a package is damaged.
_MOST_BYTES = 1 << 32


@dataclass(frozen=True)
class _Prepared:
    """What a block needs each time that it runs.

    Attributes:
        constants: its own, by name.
        spent: for each node, the names that nothing reads after it.
    """

    constants: dict[str, np.ndarray]
    spent: list[list[str]]

    @classmethod
    def of(cls, block: Block) -> _Prepared:
        last = dict.fromkeys(block.outputs, len(block.nodes))
        spent: list[list[str]] = [[] for _ in block.nodes]
        for place, node in reversed(list(enumerate(block.nodes))):
            for name in {*node.inputs, *node.outputs}.union(*(branch.free() for branch in node.branches)):
                if last.setdefault(name, place) == place:
                    spent[place].append(name)
        return cls({name: each.array() for name, each in block.constants.items()}, spent)


@dataclass(frozen=True)
class Tail:
    """A tail that is ready to run.

    Attributes:
        block: what it does.
        outputs: of the network, in order; a size of -1 depends on the data.
    """

    block: Block
    outputs: list[TensorSpec]
    _prepared: dict[int, _Prepared] = field(default_factory=dict, compare=False, repr=False)

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """The network's outputs by name, at the lengths that the data give them.

        Args:
            tensors: the network's inputs and the outputs of its compiled part, by name.
        """
        with np.errstate(all="ignore"):
            arrays = self._run(self.block, dict(tensors))
        found = dict(zip((spec.name for spec in self.outputs), arrays, strict=True))
        for spec in self.outputs:
            if why := spec.misfit(found[spec.name]):
                raise PackageError(f"the package gives another output {spec.name!r} than its manifest says", why=why)
        return found

    def _run(self, block: Block, values: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        if id(block) not in self._prepared:
            self._prepared[id(block)] = _Prepared.of(block)
        prepared = self._prepared[id(block)]
        values |= prepared.constants
        held = sum(array.nbytes for array in values.values())
        for node, spent in zip(block.nodes, prepared.spent, strict=True):
            try:
                inputs = [values[name] if name else None for name in node.inputs]
                if node.operator == "If":
                    made = self._run(node.branches[0 if _is_true(inputs[0]) else 1], dict(values))
                else:
                    returned = OPERATORS[node.operator](inputs, node.attributes)
                    made = [returned] if isinstance(returned, np.ndarray | np.generic) else returned
                if len(made) < len(node.outputs):
                    raise ValueError(f"it gives {len(made)} outputs, {len(node.outputs)} are named")
            except PackageError:
                raise
            except Exception as error:
                raise PackageError(
                    "the end of the network cannot be computed",
                    why=f"node {node.name!r}, {node.operator}: {last_line(error)}",
                ) from error
            new = {name: np.asarray(array) for name, array in zip(node.outputs, made, strict=False) if name}
            values |= new
            held += sum(array.nbytes for array in new.values())
            held -= sum(values.pop(name).nbytes for name in spent if name in values)
            if held > _MOST_BYTES:
                raise PackageError(
                    "the end of the network cannot be computed",
                    why=f"after node {node.name!r}, {node.operator}, its values take more than {_MOST_BYTES:,} bytes",
                )
        return [values[name] for name in block.outputs]


def _is_true(condition: np.ndarray | None) -> bool:
    if condition is None or condition.size != 1:
        raise ValueError("the condition is not one value")
    return bool(condition.reshape(-1)[0])
