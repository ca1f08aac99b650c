"""The demos: one image through one network, with a log that compares line by line with Tengine's examples."""

import edgedeploy.base.opencv  # noqa: F401
