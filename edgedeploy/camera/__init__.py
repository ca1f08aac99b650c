"""Frames of cameras as networks' inputs: how a frame lies in an input, and the code that brings it there."""

import edgedeploy.opencv  # noqa: F401
