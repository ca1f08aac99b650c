"""A tail: its form in packages, nodes in ONNX's terms that are checked before they run, and how it is computed."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, field_validator, model_validator

from edgedeploy.base.documents import Listed, Record, parse_json
from edgedeploy.errors import PackageError, last_line
from edgedeploy.model.tail.operators import Operator, computed, elementwise, shaping, suppression
from edgedeploy.model.tensors import DTYPES, Tensors, TensorSpec

MAXIMUM_TAIL = 1 << 26  # bytes of JSON: thousands of nodes, with anchors of a megabyte or two
_DEEPEST = 8  # nested branches

OPERATORS: dict[str, Operator] = {**elementwise.OPERATORS, **shaping.OPERATORS, **suppression.OPERATORS}

Attribute = int | float | str | list[int] | list[float]


class Constant(Record):
    """A tensor of fixed values, little-endian, in base64."""

    dtype: str
    shape: Annotated[Listed[Annotated[int, Field(ge=0, le=MAXIMUM_TAIL)]], Field(max_length=32)]
    data: str

    @classmethod
    def of(cls, array: np.ndarray) -> Constant:
        """The record of an array."""
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        return cls(dtype=array.dtype.name, shape=list(array.shape), data=base64.b64encode(little.tobytes()).decode())

    @model_validator(mode="after")
    def _fits(self) -> Constant:
        if self.dtype not in DTYPES:
            raise ValueError(f"a constant of {self.dtype}")
        try:
            size = len(base64.b64decode(self.data, validate=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError("a constant that is not base64") from error
        if size != math.prod(self.shape) * np.dtype(self.dtype).itemsize:
            raise ValueError(f"a constant of shape {self.shape} with {size} bytes")
        return self

    def array(self) -> np.ndarray:
        """Its values."""
        little = np.dtype(self.dtype).newbyteorder("<")
        return np.frombuffer(base64.b64decode(self.data), little).astype(self.dtype).reshape(self.shape)


class Node(Record):
    """One operator."""

    name: str  # for messages
    operator: str  # a name in `OPERATORS`, or `If`
    inputs: Listed[str]  # names of values; "" for an optional one that is left out
    outputs: Annotated[Listed[str], Field(min_length=1)]  # names of values; "" for an unused one
    attributes: dict[str, Attribute] = {}  # those of ONNX; types have numpy's names
    branches: Listed[Block] = []  # of `If`: then and else

    @field_validator("operator")
    @classmethod
    def _is_known(cls, operator: str) -> str:
        if operator != "If" and operator not in OPERATORS:
            raise ValueError(f"no operator {operator!r} is known")
        return operator

    @model_validator(mode="after")
    def _branches_as_needed(self) -> Node:
        if len(self.branches) != (2 if self.operator == "If" else 0):
            raise ValueError(f"{self.operator} with {len(self.branches)} branches")
        if self.operator == "If" and len(self.inputs) != 1:
            raise ValueError("If takes one condition")
        if any(len(branch.outputs) != len(self.outputs) for branch in self.branches):
            raise ValueError("a branch with another number of outputs")
        return self


class Block(Record):
    """Nodes with their constants, and the names of the outputs."""

    constants: dict[str, Constant]
    nodes: Annotated[Listed[Node], Field(max_length=100_000)]
    outputs: Listed[str]

    def free(self) -> set[str]:
        """The names that it reads and does not define: the values it needs."""
        made = set(self.constants)
        needed: set[str] = set()
        for node in self.nodes:
            for name in (*filter(None, node.inputs), *(each for branch in node.branches for each in branch.free())):
                if name not in made:
                    needed.add(name)
            for name in filter(None, node.outputs):
                if name in made or name in needed:
                    raise ValueError(f"{name!r} is written twice, or after it is read")
                made.add(name)
        return needed | (set(self.outputs) - made)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The values of its constants."""
        return {name: each.array() for name, each in self.constants.items()}

    @cached_property
    def spent(self) -> list[list[str]]:
        """For each node the names that nothing reads after it."""
        last = dict.fromkeys(self.outputs, len(self.nodes))
        spent: list[list[str]] = [[] for _ in self.nodes]
        for place, node in reversed(list(enumerate(self.nodes))):
            for name in {*node.inputs, *node.outputs}.union(*(branch.free() for branch in node.branches)):
                if last.setdefault(name, place) == place:
                    spent[place].append(name)
        return spent


_BLOCK = TypeAdapter(Block)


def content_of(block: Block) -> bytes:
    """A tail's member of a package."""
    return (json.dumps(block.model_dump(mode="json", exclude_defaults=True), sort_keys=True) + "\n").encode()


def parse_block(content: bytes, known: Collection[str]) -> Block:
    """Parse and check a package's member; `known` are the names of the values from the compiled part."""
    if len(content) > MAXIMUM_TAIL:
        raise ValueError(f"it has {len(content):,} bytes, more than the {MAXIMUM_TAIL:,} that are read")
    block = parse_json(content, _BLOCK)
    if _depth(block) > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if missing := block.free() - set(known):
        raise ValueError(f"no node or constant gives {', '.join(map(repr, sorted(missing)))}")
    return block


def _depth(block: Block) -> int:
    return 1 + max((_depth(branch) for node in block.nodes for branch in node.branches), default=0)


_MOST_BYTES = 1 << 32  # bytes of all values at a time: a package with more is damaged


@dataclass(frozen=True)
class Tail:
    """A tail that is ready to run."""

    block: Block
    outputs: list[TensorSpec]  # of the network, in order; a size of -1 depends on the data

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """The network's outputs by name, from its inputs and the outputs of its compiled part."""
        with np.errstate(all="ignore"):
            arrays = self._run(self.block, dict(tensors))
        found = dict(zip((spec.name for spec in self.outputs), arrays, strict=True))
        for spec in self.outputs:
            if why := spec.misfit(found[spec.name]):
                raise PackageError(f"the package gives another output {spec.name!r} than its manifest states", why=why)
        return found

    def _run(self, block: Block, values: dict[str, np.ndarray]) -> Sequence[np.ndarray]:
        values |= block.arrays
        held = sum(array.nbytes for array in values.values())
        for node, spent in zip(block.nodes, block.spent, strict=True):
            try:
                inputs: list[Any] = [values[name] if name else None for name in node.inputs]
                if node.operator == "If":
                    made = self._run(node.branches[0 if inputs[0].item() else 1], dict(values))
                else:
                    made = computed(OPERATORS[node.operator], inputs, node.attributes)
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
