"""A tail as it lies in a package: nodes in ONNX's terms, in the order of their work, checked before they run.

It names operators of `tail.operators` and holds numbers: there is nothing in it that could be code.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Collection, Iterator
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter, field_validator, model_validator

from edgedeploy.documents import Listed, Record, parse_json
from edgedeploy.tail.operators import OPERATORS

# Of its JSON, in bytes: thousands of nodes, with anchors of a megabyte or two.
MAXIMUM_TAIL = 1 << 26
# Branches in branches.
_DEEPEST = 8
# Text is encoded so that six bits take a byte.
_DTYPES = (
    "float16", "float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip

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
        if self.dtype not in _DTYPES:
            raise ValueError(f"a constant of {self.dtype}")
        try:
            size = len(base64.b64decode(self.data, validate=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError("a constant that is no base64") from error
        if size != math.prod(self.shape) * np.dtype(self.dtype).itemsize:
            raise ValueError(f"a constant of shape {self.shape} with {size} bytes")
        return self

    def array(self) -> np.ndarray:
        """Its values."""
        little = np.dtype(self.dtype).newbyteorder("<")
        return np.frombuffer(base64.b64decode(self.data), little).astype(self.dtype).reshape(self.shape)


class Node(Record):
    """One operator.

    Attributes:
        name: the network's own, for messages.
        operator: a name of `OPERATORS`, or `If`.
        inputs: names of values; "" leaves an optional one out.
        outputs: names of what it makes; "" for what nobody reads.
        attributes: as ONNX has them; types are named as numpy does.
        branches: of `If`, what is done where its condition holds, and else.
    """

    name: str
    operator: str
    inputs: Listed[str]
    outputs: Annotated[Listed[str], Field(min_length=1)]
    attributes: dict[str, Attribute] = {}
    branches: Listed[Block] = []

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
    """Nodes with their constants, and the names of what comes out."""

    constants: dict[str, Constant]
    nodes: Annotated[Listed[Node], Field(max_length=100_000)]
    outputs: Listed[str]

    def free(self) -> set[str]:
        """The names that it reads and does not make: what must be there before."""
        made = set(self.constants)
        needed: set[str] = set()
        for node in self.nodes:
            for name in (*filter(None, node.inputs), *(each for branch in node.branches for each in branch.free())):
                if name not in made:
                    needed.add(name)
            for name in filter(None, node.outputs):
                if name in made or name in needed:
                    raise ValueError(f"{name!r} is made twice, or after it is read")
                made.add(name)
        return needed | (set(self.outputs) - made)

    def every_node(self) -> Iterator[Node]:
        """Its nodes, those of branches among them."""
        for node in self.nodes:
            yield node
            for branch in node.branches:
                yield from branch.every_node()


_BLOCK = TypeAdapter(Block)


def content_of(block: Block) -> bytes:
    """A tail as the member of a package."""
    return (json.dumps(block.model_dump(mode="json", exclude_defaults=True), sort_keys=True) + "\n").encode()


def parse_block(content: bytes, known: Collection[str]) -> Block:
    """The tail that a package's member holds.

    Args:
        content: the member.
        known: the names of the values that are there when it begins.
    """
    if len(content) > MAXIMUM_TAIL:
        raise ValueError(f"it has {len(content):,} bytes, more than the {MAXIMUM_TAIL:,} that are read")
    block = parse_json(content, _BLOCK)
    if _depth(block) > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if missing := block.free() - set(known):
        raise ValueError(f"nothing makes {', '.join(map(repr, sorted(missing)))}")
    return block


def _depth(block: Block) -> int:
    return 1 + max((_depth(branch) for node in block.nodes for branch in node.branches), default=0)
