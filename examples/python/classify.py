"""classify.py RELEASE IMAGE SCALE [MEAN...]: the five likeliest classes of an image, a PGM (grey) or PPM (as B, G, R).

python3 classify.py digits digit.pgm 0.004
python3 classify.py squeezenet_v1.1 cat.ppm 1 104.007 116.669 122.679
"""

import re
import sys
from pathlib import Path

import numpy as np
from edgedeploy_runtime import Network


def read_image(path):
    """A binary PGM or PPM as rows x columns x channels, in the order B, G, R."""
    content = Path(path).read_bytes()
    header = re.match(rb"P([56])\s+(\d+)\s+(\d+)\s+255\s", content)
    kind, width, height = map(int, header.groups())
    pixels = np.frombuffer(content, np.uint8, offset=header.end())
    return pixels.reshape(height, width, 1 if kind == 5 else 3)[:, :, ::-1]


def stretched(image, height, width):
    """The image in another size, each pixel that of its place."""
    rows = np.arange(height) * image.shape[0] // height
    columns = np.arange(width) * image.shape[1] // width
    return image[rows[:, None], columns]


release, file, scale, *means = sys.argv[1:]
with Network(release) as network:
    _, channels, height, width = network.inputs[0].shape
    pixels = stretched(read_image(file), height, width).astype(np.float32)
    mean = np.array(means or [0] * channels, np.float32)
    values = ((pixels - mean) * np.float32(scale)).transpose(2, 0, 1)[None]
    [scores] = network(values).values()
for best in np.argsort(-scores.ravel())[:5]:
    print(f"{scores.ravel()[best]:f}, {best}")
