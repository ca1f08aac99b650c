"""detect.py IMAGE [RELEASE]: what a network sees in an image, a PPM or PGM.

    pip install edgedeploy_runtime-*.whl    # which `edgedeploy library -o FOLDER` wrote

With OpenCV, images are read by `cv2.imread(path)`, and those of a camera by `cv2.VideoCapture(0).read()`.
"""

import re
import sys
from pathlib import Path

import numpy as np
from edgedeploy_runtime import Network

RELEASE = "retinaface"  # a model's release in use, or the path of a folder


def read_image(path):
    """Rows x columns of grey levels, or rows x columns x 3 in the order R, G, B."""
    content = Path(path).read_bytes()
    header = re.match(rb"P([56])\s+(\d+)\s+(\d+)\s+255\s", content)
    if not header:
        sys.exit(f"detect: {path} is not an image")
    kind, width, height = map(int, header.groups())
    pixels = np.frombuffer(content, np.uint8, offset=header.end())
    return pixels.reshape((height, width) if kind == 5 else (height, width, 3))


image, release = (*sys.argv[1:], RELEASE)[:2]
pixels = read_image(image)
with Network(release) as network:
    for found in network.detect(pixels, "GRAY" if pixels.ndim == 2 else "RGB"):
        score = [] if found.score is None else [f"{found.score:.6f}"]
        box = [f"[{' '.join(f'{side:.2f}' for side in found.box)}]"] if found.box else []
        print(found.label, *score, *box, *(f"({x:.2f} {y:.2f})" for x, y in found.points))
