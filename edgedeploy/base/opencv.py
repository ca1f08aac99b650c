"""OpenCV's settings in environment variables: packages that use OpenCV import this before anything else."""

from __future__ import annotations

import os

# More than any camera takes, and 400 MB once decoded: a small file that claims to be larger is refused by its header.
MAX_PIXELS = 1 << 27

# Single-file videos only: FFmpeg would also take texts for images, and open files listed in playlists.
_VIDEO_FORMATS = "asf,avi,dv,flv,gif,h264,hevc,ivf,matroska,mjpeg,mov,mpeg,mpegts,mpegvideo,mxf,ogg,webm,yuv4mpegpipe"

# OpenCV reads most of these once, when it is loaded. edgedeploy reports errors itself, so OpenCV and FFmpeg are silent.
for _name, _value in {
    "OPENCV_IO_MAX_IMAGE_PIXELS": str(MAX_PIXELS),
    "OPENCV_FFMPEG_CAPTURE_OPTIONS": f"protocol_whitelist;file|format_whitelist;{_VIDEO_FORMATS}",
    "OPENCV_LOG_LEVEL": "SILENT",
    "OPENCV_FFMPEG_LOGLEVEL": "-8",  # AV_LOG_QUIET
}.items():
    os.environ.setdefault(_name, _value)
