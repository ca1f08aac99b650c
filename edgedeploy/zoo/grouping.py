"""Fewer boxes for a drawing: a layer with what is computed on its result at once, and chains that repeat themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

# What takes a box of its own, and what joins it where nothing else reads what lies between.
_LEADING = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_FOLLOWING = {
    *("BatchNormalization", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh"),
    *("Elu", "Selu", "Celu", "Softplus", "Mish", "Gelu"),
}

# Layers of a chain that are compared with those after them.
_LONGEST_BLOCK = 12


@dataclass(frozen=True)
class DrawnNode:
    """One box: a node of a network, or several.

    Attributes:
        name: its own, or the value's that it is known by.
        operator: ONNX's name of it; "" for an input or output of the network. Several are joined by ` + `.
        reads: names of the values that it reads, without its parameters.
        writes: names of the values that it gives.
        shape: of its first value; None where it is not known.
        parameters: how many constant values it has.
        details: what else there is to say, as `3x3, stride 2x2`.
        block: what each layer of a block is, where the box stands for one.
        times: how often that follows itself.
    """

    name: str
    operator: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    shape: tuple[int, ...] | None
    parameters: int = 0
    details: str = ""
    block: tuple[str, ...] = ()
    times: int = 1

    @property
    def title(self) -> str:
        """Its operators, with what sets it apart."""
        return f"{self.operator} {self.details}".strip()


def grouped(layers: Sequence[DrawnNode]) -> list[DrawnNode]:
    """Layers in fewer boxes, in an order in which they run.

    A convolution or product takes the normalisation and the activation after it into its box. Where a chain of such
    boxes repeats itself, whatever its shapes, one box stands for all.
    """
    boxes = _merged(list(layers))
    found, done = [], set[int]()
    readers = _readers(boxes)
    for start, box in enumerate(boxes):
        if start not in done:
            chain = _chain(boxes, start, readers)
            done.update(chain)
            found += _folded([boxes[place] for place in chain]) if box.operator else [box]
    return found


def _readers(boxes: Sequence[DrawnNode]) -> dict[str, list[int]]:
    """By name of a value, the places of those that read it."""
    found: dict[str, list[int]] = {}
    for place, box in enumerate(boxes):
        for value in dict.fromkeys(box.reads):
            found.setdefault(value, []).append(place)
    return found


def _next(boxes: Sequence[DrawnNode], place: int, readers: dict[str, list[int]]) -> int | None:
    """The one box that reads a box's one value, and nothing else."""
    box = boxes[place]
    if len(box.writes) != 1:
        return None
    found = readers.get(box.writes[0], [])
    return found[0] if len(found) == 1 and set(boxes[found[0]].reads) == set(box.writes) else None


def _merged(layers: list[DrawnNode]) -> list[DrawnNode]:
    """Layers with what follows them at once."""
    readers, gone = _readers(layers), set[int]()
    found = []
    for start, layer in enumerate(layers):
        if start in gone:
            continue
        box = layer
        while layer.operator in _LEADING and (followed := _follower(layers, box.writes, readers)):
            name, places = followed
            gone.update(places)
            parameters = box.parameters + sum(layers[place].parameters for place in places)
            last, operator = layers[places[-1]], f"{box.operator} + {name}"
            box = replace(box, operator=operator, writes=last.writes, shape=last.shape, parameters=parameters)
        found.append(box)
    return found


def _follower(
    layers: Sequence[DrawnNode], values: Sequence[str], readers: dict[str, list[int]]
) -> tuple[str, list[int]] | None:
    """What is computed of the values of a box alone, and joins it: its name and its places; None if nothing is."""
    places = readers.get(values[0], []) if len(values) == 1 else []
    operators, reads = [layers[place].operator for place in places], [set(layers[place].reads) for place in places]
    if len(places) == 1 and operators[0] in _FOLLOWING and reads[0] == set(values):
        return operators[0], places
    if operators == ["Sigmoid", "Mul"] and reads[1] == {*values, *layers[places[0]].writes}:
        return ("SiLU", places) if readers[layers[places[0]].writes[0]] == places[1:] else None
    return None


def _chain(boxes: Sequence[DrawnNode], start: int, readers: dict[str, list[int]]) -> list[int]:
    """A box and those that follow it one by one, to the last that is no output of the network."""
    chain = [start]
    while (place := _next(boxes, chain[-1], readers)) is not None and boxes[place].operator and boxes[start].operator:
        chain.append(place)
    return chain


def _folded(chain: Sequence[DrawnNode]) -> list[DrawnNode]:
    """A chain in which blocks that follow themselves are one box each."""
    titles, found, place = [box.title for box in chain], list[DrawnNode](), 0
    while place < len(chain):
        length, times = _repetition(titles[place:])
        part = chain[place : place + length * times]
        found.append(_block(part, length, times) if times > 1 else part[0])
        place += length * times if times > 1 else 1
    return found


def _repetition(titles: Sequence[str]) -> tuple[int, int]:
    """How long the block is that begins here, and how often it follows itself, so that the most is covered."""
    best = 1, 1
    for length in range(1, min(_LONGEST_BLOCK, len(titles) // 2) + 1):
        times = 1
        while titles[times * length : (times + 1) * length] == titles[:length]:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best


def _block(part: Sequence[DrawnNode], length: int, times: int) -> DrawnNode:
    first, last = part[0], part[-1]
    return DrawnNode(
        f"{first.name} to {last.name}",
        Counter(box.operator for box in part).most_common(1)[0][0],
        first.reads,
        last.writes,
        last.shape,
        sum(box.parameters for box in part),
        block=tuple(box.title for box in part[:length]),
        times=times,
    )
