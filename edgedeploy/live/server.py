"""The live page, served to browsers of this machine. Slow browsers skip images, and nobody waits for them."""

from __future__ import annotations

import errno
import io
import logging
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from typing import Any
from urllib.parse import urlsplit

from edgedeploy.base.closing import beside
from edgedeploy.base.text import json_text
from edgedeploy.errors import InputError
from edgedeploy.live.showing import Showing
from edgedeploy.remote import LOOPBACK
from edgedeploy.report import render

# Hosts in requests of this machine's own browsers; another name would be DNS rebinding. The port may be a tunnel's.
_HOSTS = (LOOPBACK, "localhost")

_PATIENCE_S = 15  # timeout of browsers
_REPEAT_S = 5.0  # a picture is sent again after this time, to notice closed connections
_MOST_RATE = 30  # pictures per second
_SEND_BYTES = 1 << 18  # of the kernel's buffer; more would be old pictures
_MOST_CONNECTIONS = 32
_BOUNDARY = "edgedeploy-frame"

_log = logging.getLogger(__name__)


@contextmanager
def serving(showing: Showing, title: str, port: int) -> Iterator[str]:
    """Serve a page about `showing`, which ends with the block; gives its address. Port 0 is any free one."""
    try:
        server = _Server(port, showing, title)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise InputError(
            f"port {port} of {LOOPBACK} is taken" if taken else f"port {port} of {LOOPBACK} cannot be used",
            why="another program listens there" if taken else str(error),
            hints=["give another one with --port; 0 takes any that is free"],
        ) from error

    def end() -> None:
        showing.end()
        server.shutdown()
        server.server_close()

    with beside(partial(server.serve_forever, 0.1), end):
        yield f"http://{LOOPBACK}:{server.server_address[1]}/"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, showing: Showing, title: str) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self._free = threading.Semaphore(_MOST_CONNECTIONS)
        self.showing, self.nonce = showing, secrets.token_urlsafe(16)
        self.page = render("edgedeploy.live", "live.html", title=title, nonce=self.nonce).encode()

    def process_request(self, request: object, client_address: object) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore browsers that went away."""
        _log.debug("a browser's request ended early", exc_info=True)


class _Requests(io.RawIOBase):
    """A browser's requests, with a deadline for all of a request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self.deadline - monotonic(), 0.001))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "edgedeploy", ""
    timeout = _PATIENCE_S

    def setup(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        super().setup()
        self._requests = _Requests(self.connection)
        self.rfile.close()
        self.rfile = io.BufferedReader(self._requests)

    def handle_one_request(self) -> None:
        self._requests.deadline = monotonic() + _PATIENCE_S
        super().handle_one_request()

    def do_GET(self) -> None:
        pages = {"/": self._page, "/video": self._video, "/state": self._state, "/frame.jpg": self._frame}
        # Other sites may link to the page, but not embed its pictures.
        self._dispatch(pages, linked="/")

    def do_POST(self) -> None:
        set_paused = self.server.showing.set_paused
        self.close_connection = True  # the body is not read
        if self._dispatch({"/pause": partial(set_paused, True), "/resume": partial(set_paused, False)}):
            self._state()

    def _dispatch(self, calls: Mapping[str, Callable[[], None]], linked: str | None = None) -> bool:
        """Call the function for the request's path, and return True, or refuse; other sites may link to `linked`."""
        path = urlsplit(self.path).path
        if not self._is_from_here(foreign_site=path == linked):
            self._answer(HTTPStatus.FORBIDDEN, b"this page is for this machine's own browsers\n")
        elif path not in calls:
            self._answer(HTTPStatus.NOT_FOUND, b"there is nothing here\n")
        else:
            calls[path]()
            return True
        return False

    def _page(self) -> None:
        nonce = f"'nonce-{self.server.nonce}'"
        allowed = f"default-src 'none'; img-src 'self'; connect-src 'self'; style-src {nonce}; script-src {nonce}"
        policy = f"{allowed}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        self._answer(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8", {"Content-Security-Policy": policy})

    def _state(self) -> None:
        self._answer(HTTPStatus.OK, json_text(self.server.showing.as_dict()).encode(), "application/json")

    def _frame(self) -> None:
        """The current picture as a download."""
        seen = self.server.showing.newest
        if seen is None:
            self._answer(HTTPStatus.NOT_FOUND, b"there is no image yet\n")
            return
        named = {"Content-Disposition": f'attachment; filename="frame-{seen.index:06}.jpg"'}
        self._answer(HTTPStatus.OK, seen.whole(), "image/jpeg", named)

    def _video(self) -> None:
        """Motion JPEG. Browsers show a part when they have read its final boundary."""
        self.close_connection = True
        self._begin(HTTPStatus.OK, f"multipart/x-mixed-replace; boundary={_BOUNDARY}", {"Connection": "close"})
        ending = f"\r\n--{_BOUNDARY}\r\n".encode()
        self.wfile.write(ending)
        showing, seen = self.server.showing, None
        while True:
            started = monotonic()
            newer = showing.next(seen, _REPEAT_S)
            if newer is None and showing.ended:
                return
            seen = newer or seen
            if seen is not None:
                picture = seen.streamed()
                self.wfile.write(f"Content-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n".encode())
                self.wfile.write(picture + ending)
            sleep(max(0.0, started + 1 / _MOST_RATE - monotonic()))

    def _answer(
        self,
        status: HTTPStatus,
        content: bytes,
        kind: str = "text/plain; charset=utf-8",
        headers: dict[str, str] | None = None,
    ) -> None:
        self._begin(status, kind, {"Content-Length": str(len(content)), **(headers or {})})
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        always = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in (always | headers).items():
            self.send_header(name, value)
        if self.close_connection and "Connection" not in headers:
            self.send_header("Connection", "close")
        self.end_headers()

    def _is_from_here(self, *, foreign_site: bool = False) -> bool:
        """Whether a request is for this machine, and comes from this page or no page."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or re.sub(r":\d{1,5}$", "", hosts[0].lower()) not in _HOSTS:
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{hosts[0].lower()}":
            return False
        return foreign_site or self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
