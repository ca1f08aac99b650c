"""Draw circles, squares and triangles: `photos/`, images to quantise a network with, and `desk.jpg`, to look at.

pip install numpy opencv-python-headless
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

SIZE, CLASSES = 96, 3
DESK = 57  # the seed of the image to look at


def drawn(random: np.random.Generator) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    """An image, B, G, R, and what is in it: class, and x, y and half the size in pixels."""
    ground = random.integers(0, 256, (6, 6, 3)).astype(np.float32) * 0.5 + random.integers(0, 128)
    image = cv2.resize(ground, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    image = np.clip(image + random.normal(0, 6, image.shape), 0, 255).astype(np.uint8)
    seen: list[tuple[int, int, int, int]] = []
    for _ in range(random.integers(1, 5)):
        half = int(random.integers(8, 20))
        x, y = (int(each) for each in random.integers(half, SIZE - half, 2))
        if any(max(abs(x - x0), abs(y - y0)) < half + other + 2 for _, x0, y0, other in seen):
            continue
        kind, colour = int(random.integers(CLASSES)), [int(each) for each in random.integers(0, 256, 3)]
        if kind == 0:
            cv2.circle(image, (x, y), half, colour, cv2.FILLED, cv2.LINE_AA)
        elif kind == 1:
            cv2.rectangle(image, (x - half, y - half), (x + half, y + half), colour, cv2.FILLED)
        else:
            corners = np.array([[x, y - half], [x - half, y + half], [x + half, y + half]], np.int32)
            cv2.fillPoly(image, [corners], colour, cv2.LINE_AA)
        seen.append((kind, x, y, half))
    return image, seen


def main() -> None:
    """Write images that no network was trained on into the working folder."""
    random = np.random.default_rng(1)
    Path("photos").mkdir(exist_ok=True)
    for number in range(40):
        cv2.imwrite(f"photos/{number:02}.png", drawn(random)[0])
    desk, _ = drawn(np.random.default_rng(DESK))
    cv2.imwrite("desk.jpg", cv2.resize(desk, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC))


if __name__ == "__main__":
    main()
