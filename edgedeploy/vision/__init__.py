"""Images and what networks see in them: reading, preprocessing, decoding of outputs, drawing.

Images are numpy arrays as OpenCV has them: height x width x 3, uint8, channels in the order B, G, R.
Coordinates are pixels of the image, x to the right and y down, with (0, 0) at the top left.
"""

from __future__ import annotations

from edgedeploy.base.opencv import MAX_PIXELS as MAX_PIXELS
