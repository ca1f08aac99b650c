"""Results as they come, on a page in the browser: `showing.py` holds the newest, `server.py` serves it on loopback."""

import edgedeploy.base.opencv  # noqa: F401
