"""What OpenCV reads from the environment when it is loaded: packages that call it import this before all else."""

from __future__ import annotations

import os

# More than any camera of today takes, and 400 MB once decoded: a small file that claims to be larger is
# refused from its header.
MAX_PIXELS = 1 << 27

# Only what holds a video in one file: FFmpeg would also take texts for images, and open what playlists name.
_VIDEO_FORMATS = "asf,avi,dv,flv,gif,h264,hevc,ivf,matroska,mjpeg,mov,mpeg,mpegts,mpegvideo,mxf,ogg,webm,yuv4mpegpipe"

# OpenCV reads most of these once, when it is loaded, so they are set before that. What goes wrong is told by
# errors of edgedeploy, not by lines that OpenCV and FFmpeg print.
for _name, _value in {
    "OPENCV_IO_MAX_IMAGE_PIXELS": str(MAX_PIXELS),
    "OPENCV_FFMPEG_CAPTURE_OPTIONS": f"protocol_whitelist;file|format_whitelist;{_VIDEO_FORMATS}",
    "OPENCV_LOG_LEVEL": "SILENT",
    "OPENCV_FFMPEG_LOGLEVEL": "-8",  # AV_LOG_QUIET
}.items():
    os.environ.setdefault(_name, _value)
