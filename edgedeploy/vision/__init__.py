"""Pictures and what networks see in them: reading, preprocessing, decoding of outputs, drawing.

Pictures are numpy arrays as OpenCV has them: height x width x 3, uint8, channels in the order B, G, R.
Coordinates are pixels of the picture, x to the right and y down, with (0, 0) at the top left.
"""

from __future__ import annotations

import os

# More than any camera of today takes, and 400 MB once decoded: a small file that claims to be larger is
# refused from its header. OpenCV reads the variable once, when it is loaded, so it is set before that.
MAX_PIXELS = 1 << 27
os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))
