"""Decoders of key points: MediaPipe's BlazeFace and its relatives, landmark networks, and PFLD's faces."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.base.documents import Record
from edgedeploy.model.tensors import shown
from edgedeploy.vision.crop import Index, Indices
from edgedeploy.vision.decoder import (
    Decoder,
    Fraction,
    Outputs,
    Stride,
    anchors,
    corners,
    not_of_this_kind,
    output,
    sigmoid,
    table,
)
from edgedeploy.vision.decoders.detector import Candidates, Detector, clusters
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, label_of


class AnchorLevel(Record):
    """The anchors of each cell of one level, all at its centre; MediaPipe counts levels of the same stride as one."""

    stride: Stride
    anchors: Annotated[int, Field(gt=0, le=64)] = 1


class Blaze(Detector):
    """Faces, palms and people with key points, from boxes relative to anchors that have places but no sizes.

    This is BlazeFace (Bazarevsky et al., 2019, arXiv:1907.05047) and its relatives, decoded like in MediaPipe's
    calculators SsdAnchors, TensorsToDetections and NonMaxSuppression.

    Each cell of each level has its anchors at its centre (ax, ay), cell by cell, row by row. A row of `boxes` is
    (x, y, w, h, x0, y0, x1, y1, ...) in pixels of the network's input: a box around (ax + x, ay + y) of size (w, h),
    and key points at (ax + x0, ay + y0) and so on. The score is the sigmoid of `scores`.

    Overlapping boxes and their points are averaged, weighted by their scores. This is steadier from image to image
    than the best box alone.

    `scores` is 1 x n x 1, and `boxes` 1 x n x (4 + 2 for each point).
    """

    kind: Literal["blaze"]
    threshold: Fraction = 0.5
    iou_threshold: Fraction = 0.3
    clip: bool = False
    scores: str
    boxes: str
    points: Annotated[int, Field(ge=0, le=1024)]
    levels: Annotated[list[AnchorLevel], Field(min_length=1)]
    name: str = "face"

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """A candidate for every anchor with a sound size."""
        levels = [(level.stride, np.zeros((level.anchors, 2))) for level in self.levels]
        places = anchors(frame.network, levels, even=True)[:, :2]
        values = table(outputs, self.boxes, len(places), 4 + 2 * self.points)
        scores = sigmoid(table(outputs, self.scores, len(places), 1)[:, 0])
        boxes = corners(places + values[:, :2], values[:, 2:4])
        points = places[:, None] + values[:, 4:].reshape(-1, self.points, 2) if self.points else None
        found = Candidates.of(scores, boxes, points=points)
        return found[np.all(values[:, 2:4] >= 0, axis=1)]

    def label(self, labels: list[str], class_id: int) -> str:
        """`name`, unless the network's entry has labels."""
        return label_of(labels or [self.name], class_id)

    def reduced(self, found: Candidates) -> Candidates:
        """The mean of each group of overlapping candidates."""
        groups = clusters(found.boxes, found.scores, self.iou_threshold)
        best = found[np.array([group[0] for group in groups], np.intp)]
        if not groups:
            return best
        # Weighted by the scores.
        weights = [found.scores[group] / found.scores[group].sum() for group in groups]
        boxes, points = (
            np.stack([np.tensordot(weight, values[group], 1) for weight, group in zip(weights, groups, strict=True)])
            for values in (found.boxes, found.points)
        )
        return replace(best, boxes=boxes, points=points)


class Landmark(Decoder):
    """Points of a face that fills the image: x0, y0, x1, y1, ... in fractions (0 to 1) of the input's width and height.

    The points are read from the output with twice as many values.
    """

    kind: Literal["landmark"]
    points: Annotated[int, Field(gt=0)]

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """One face with its points; the network gives neither score nor box."""
        output = next((array for array in outputs.values() if array.size == 2 * self.points), None)
        if output is None:
            shapes = ", ".join(f"{name} {shown(array.shape)}" for name, array in outputs.items())
            raise not_of_this_kind(f"none of its outputs holds {2 * self.points} values: {shapes}")
        height, width = frame.network
        fractions = output.reshape(self.points, 2).astype(np.float32)
        points = frame.to_image(fractions * np.array([width, height], np.float32))
        return [Detection(label=label_of(labels or ["face"], 0), class_id=0, points=_pairs(points))]


class Heatmap(Record):
    """An output with a heatmap of each point: logits, 1 x rows x columns x points.

    Each point moves to the mean of the `kernel` x `kernel` places around it, weighted by their sigmoids, if one of
    these reaches `threshold`.
    """

    output: str
    kernel: Annotated[int, Field(gt=0, le=255)] = 7
    threshold: Fraction = 0.5

    def refine(self, places: np.ndarray, outputs: Outputs, network: tuple[int, int]) -> np.ndarray:
        """Points (n x 2) in pixels of the network's input, moved."""
        heat = output(outputs, self.output)
        if heat.ndim != 4 or len(heat) != 1 or heat.shape[3] != len(places):
            raise not_of_this_kind(f"its output {self.output!r} is {shown(heat.shape)}, not 1xHxWx{len(places)}")
        rows, columns = heat.shape[1:3]
        step = np.array([network[1] / columns, network[0] / rows])
        moved = places.copy()
        reach = (self.kernel - 1) // 2
        for index, place in enumerate(places / step):
            if not (np.isfinite(place).all() and (place > -1).all() and (place < [columns, rows]).all()):
                continue
            column, row = np.trunc(place).astype(int)
            left, top = max(0, column - reach), max(0, row - reach)
            near = sigmoid(heat[0, top : row + reach + 1, left : column + reach + 1, index].astype(np.float64))
            if near.max() >= self.threshold:
                y, x = np.mgrid[top : top + near.shape[0], left : left + near.shape[1]]
                moved[index] = np.array([(x * near).sum(), (y * near).sum()]) / near.sum() * step
        return moved


class Refinement(Record):
    """An output with more exact places of some points: x and y of each in pixels of the network's input."""

    output: str
    points: Indices  # in the output's order; those beyond the last point so far are added
    depth_of: Indices | None = None

    def refine(self, places: np.ndarray, depths: np.ndarray, outputs: Outputs) -> tuple[np.ndarray, np.ndarray]:
        """Points (n x 2) and their depths (n), some of them replaced or added."""
        better = output(outputs, self.output)
        count, last = len(self.points), max(self.points)
        if better.size != 2 * count or last >= len(places) + count or max(self.depth_of or [0]) >= len(places):
            raise not_of_this_kind(
                f"its output {self.output!r} is {shown(better.shape)}, which does not suit {count} points"
            )
        added = max(0, last + 1 - len(places))
        depth = np.nan if self.depth_of is None else depths[self.depth_of].mean()
        places = np.concatenate([places, np.full((added, 2), np.nan)])
        places[self.points] = better.reshape(-1, 2)
        return places, np.concatenate([depths, np.full(added, depth)])


class Landmarks(Decoder):
    """The points of a face, a hand or a person in a crop, from MediaPipe's landmark networks.

    Decoded like its calculators TensorsToLandmarks, LandmarksRefinement and RefineLandmarksFromHeatmap
    (github.com/google-ai-edge/mediapipe).

    `output` has the first `values` of each point: x, y and depth in pixels of the network's input, logits of visibility
    and presence.
    """

    kind: Literal["landmarks"]
    output: str
    values: Annotated[int, Field(ge=2, le=5)] = 3
    points: Annotated[int, Field(gt=0, le=1 << 16)] | None = None
    refinements: list[Refinement] = []
    heatmap: Heatmap | None = None
    guides: list[Index] = []
    score: str
    logits: bool = False
    threshold: Fraction = 0.5
    classes: str | None = None
    names: Annotated[list[str], Field(min_length=1)] = ["face"]
    depth_scale: Annotated[float, Field(gt=0)] = 1.0
    lines: list[Indices] = []

    @model_validator(mode="after")
    def _two_classes_have_two_names(self) -> Landmarks:
        if self.classes and len(self.names) != 2:
            raise ValueError("classes needs the names of both")
        return self

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """One result with its points, or none if the score does not reach the threshold."""
        values = self._values(outputs)
        score = _single(outputs, self.score)
        first = _single(outputs, self.classes) if self.classes else None
        places, depths = values[:, :2], values[:, 2] if self.values > 2 else values[:, 0] * np.nan
        if self.heatmap:
            places = self.heatmap.refine(places, outputs, frame.network)
        for refinement in self.refinements:
            places, depths = refinement.refine(places, depths, outputs)
        count = len(places) if self.points is None else self.points
        if max(count - 1, *self.guides, 0) >= len(places):
            raise not_of_this_kind(f"its output {self.output!r} has {len(places)} points only")
        probability = float(sigmoid(np.float64(score))) if self.logits else score
        if not (probability >= self.threshold and np.isfinite(places).all()):
            return []
        class_id = 0 if first is None or first >= 1 - first else 1
        in_image = frame.to_image(places)
        depths = depths[:count] / (frame.scale[0] * self.depth_scale)
        return [
            Detection(
                label=label_of(labels or self.names, class_id),
                class_id=class_id,
                score=probability,
                points=_pairs(in_image[:count]),
                depths=tuple(depths.tolist()) if np.isfinite(depths).all() else (),
                point_scores=tuple(np.nan_to_num(sigmoid(values[:count, 3])).tolist()) if self.values > 3 else (),
                guides=_pairs(in_image[self.guides]),
                edges=tuple(edge for chain in self.lines for edge in pairwise(chain)),
            )
        ]

    def _values(self, outputs: Outputs) -> np.ndarray:
        found = output(outputs, self.output)
        if found.size % self.values or not found.size:
            raise not_of_this_kind(
                f"its output {self.output!r} is {shown(found.shape)}, not {self.values} values for each point"
            )
        return found.reshape(-1, self.values).astype(np.float64)


def _single(outputs: Outputs, name: str) -> float:
    found = output(outputs, name)
    if found.size != 1:
        raise not_of_this_kind(f"its output {name!r} is {shown(found.shape)}, not one value")
    return float(found.reshape(()))


def _pairs(points: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in points)
