"""Train a small detector of circles, squares and triangles, and write it as `shapes.onnx`: `python train.py [STEPS]`.

    pip install torch onnx onnxscript opencv-python-headless

It takes about a minute on one core. Each of 12 x 12 cells of an image says, as YOLOX does it, where the middle of its
object lies, how large that is, whether there is one, and of which class.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from images import CLASSES, SIZE, drawn
from torch import nn
from torch.nn import functional

STRIDE = 8
CELLS = SIZE // STRIDE
STEPS, BATCH = 700, 32


def wanted(seen: list[tuple[int, int, int, int]]) -> np.ndarray:
    """What the network is to say: for each cell x, y, log of the size, whether there is something, and its class."""
    target = np.zeros((CELLS * CELLS, 6), np.float32)
    for kind, x, y, half in seen:
        column, row = x // STRIDE, y // STRIDE
        target[row * CELLS + column] = x / STRIDE - column, y / STRIDE - row, *[np.log(2 * half / STRIDE)] * 2, 1, kind
    return target


class Shapes(nn.Module):
    """Convolutions with batch normalisation down to 12 x 12, and what each cell says."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, stride in ((3, 12, 2), (12, 24, 2), (24, 32, 2), (32, 32, 1), (32, 32, 1)):
            layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.features, self.head = nn.Sequential(*layers), nn.Conv2d(32, 5 + CLASSES, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Images, n x 3 x 96 x 96 of 0 to 1, to n x 144 x 8: the scores have been through a sigmoid."""
        cells = self.head(self.features(image)).flatten(2).transpose(1, 2)
        return torch.cat([cells[..., :4], torch.sigmoid(cells[..., 4:])], 2)


def loss(said: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Boxes and classes count where there is something."""
    there = target[..., 4] > 0
    kinds = functional.one_hot(target[..., 5][there].long(), CLASSES).float()
    scores = functional.binary_cross_entropy(said[..., 4], target[..., 4], weight=1 + 4 * target[..., 4])
    classes = functional.binary_cross_entropy(said[..., 5:][there], kinds)
    return 5 * scores + classes + 5 * functional.smooth_l1_loss(said[..., :4][there], target[..., :4][there])


def tensor(images: list[np.ndarray]) -> torch.Tensor:
    """Images, R, G, B, of 0 to 1."""
    return torch.from_numpy(np.stack(images)[..., ::-1].transpose(0, 3, 1, 2).copy()).float() / 255


def main(steps: int = STEPS) -> None:
    """Train, and write the network into the working folder."""
    torch.manual_seed(0)
    random, model = np.random.default_rng(0), Shapes()
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    for step in range(steps):
        images, seen = zip(*(drawn(random) for _ in range(BATCH)), strict=True)
        error = loss(model(tensor(list(images))), torch.from_numpy(np.stack([wanted(each) for each in seen])))
        optimiser.zero_grad()
        error.backward()
        optimiser.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1} of {steps}: loss {error.item():.3f}", flush=True)
    torch.onnx.export(
        model.eval(), (torch.zeros(1, 3, SIZE, SIZE),), "shapes.onnx", input_names=["image"], output_names=["cells"],
        external_data=False,
    )  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
