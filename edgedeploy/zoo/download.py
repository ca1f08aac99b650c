"""Downloads of files whose size and SHA-256 are known.

An interrupted transfer stays in `<name>.part` next to the target, and the next call resumes it. The target appears
only complete and checked, by a rename.
"""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from edgedeploy.base.files import folder_lock, sha256_of, writing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import DownloadError
from edgedeploy.version import __version__

if TYPE_CHECKING:
    import requests

_BLOCK = 1 << 14  # the most bytes lost when a connection breaks
# Sizes in headers; more digits, or others than ASCII's, are ignored.
_NUMBER = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)")
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Patience:
    """Timeouts and retries of a download."""

    connect: float = 10.0  # seconds to wait for a connection
    read: float = 30.0  # seconds to wait for the next byte
    attempts: int = 4  # the most connections
    pause: float = 1.0  # seconds before the second attempt; doubled before each further one


class _TransferBrokenError(Exception):
    """This attempt failed; another one may succeed."""


def download(
    url: str, target: Path, *, size: int, sha256: str, progress: Progress = SILENT, patience: Patience = Patience()
) -> None:
    """Download `url` (http or https) to `target`, unless it is there; one process at a time downloads a target.

    Args:
        target: its folder is created, and must not hold files that others write.
        size: in bytes; never more is written.
        sha256: lower-case hexadecimal.
    """
    part = part_of(target)
    with writing(target), folder_lock(target.parent, progress):
        if _size(target) == size and sha256_of(target) == sha256:
            return
        for attempt in range(patience.attempts):
            try:
                if _size(part) != size:
                    _transfer(url, part, size, progress, patience)
                break
            except _TransferBrokenError as error:
                if attempt + 1 == patience.attempts:
                    kept = f"; the next pull goes on after {_size(part):,} of {size:,} bytes" if _size(part) else ""
                    raise DownloadError(
                        f"the download of {target.name} did not finish", why=f"{error}{kept}"
                    ) from error
                seconds = patience.pause * 2**attempt
                progress.note(f"{target.name}: {error}; trying again in {seconds:g} s")
                time.sleep(seconds)
        found = sha256_of(part)
        if found != sha256:
            part.unlink()
            raise _not_the_file(part, f"its SHA-256 is {found}, but should be {sha256}; it was removed")
        part.replace(target)


def part_of(target: Path) -> Path:
    """The file of an unfinished download of `target`."""
    return target.with_name(f"{target.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _transfer(url: str, part: Path, size: int, progress: Progress, patience: Patience) -> None:
    """Append to `part` from one connection, until it has `size` bytes."""
    import requests
    from urllib3.exceptions import HTTPError

    done = _size(part)
    if done > size:
        part.unlink()
        done = 0
    headers = {"User-Agent": f"edgedeploy/{__version__}", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(patience.connect, patience.read)) as response:
            start = _start(response, part, done, size)
            with (
                part.open("ab" if start else "wb", buffering=0) as stream,
                progress.transfer(part.stem, size, start) as advance,
            ):
                for block in response.iter_content(_BLOCK):
                    if start + len(block) > size:
                        part.unlink()
                        raise _not_the_file(part, f"the server sends more than the {size:,} bytes that are expected")
                    stream.write(block)
                    start += len(block)
                    advance(len(block))
    except (requests.RequestException, HTTPError, ValueError) as error:  # the latter two for invalid addresses
        raise _broken(error, patience) from error
    if start < size:
        raise _TransferBrokenError(f"the connection ended after {start:,} of {size:,} bytes")


def _start(response: requests.Response, part: Path, done: int, size: int) -> int:
    """The first byte of the response: `done`, or 0 if the server starts over."""
    status = response.status_code
    if status == 200:
        length = response.headers.get("Content-Length", "")
        encoded = response.headers.get("Content-Encoding", "identity") != "identity"
        if _NUMBER.fullmatch(length) and int(length) != size and not encoded:
            raise _not_the_file(part, f"the server has {int(length):,} bytes, but {size:,} are expected")
        return 0
    if status == 206:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match and match[2] not in ("*", str(size)):
            raise _not_the_file(part, f"the server has {int(match[2]):,} bytes, but {size:,} are expected")
        if match and done and int(match[1]) == done:
            return done
    if status in (206, 416):
        # The server does not resume: without a partial file the next attempt starts over.
        part.unlink(missing_ok=True)
        raise _TransferBrokenError("the server does not resume the transfer")
    host = urlsplit(response.url).hostname or "the server"
    reason = f"{host} answers {status} {response.reason or ''}".rstrip()
    if status in _TRANSIENT:
        raise _TransferBrokenError(reason)
    raise DownloadError(f"{part.stem} cannot be downloaded", why=reason)


def _not_the_file(part: Path, why: str) -> DownloadError:
    return DownloadError(f"the download of {part.stem} is not the file that was asked for", why=why)


def _broken(error: Exception, patience: Patience) -> Exception:
    """The error for a connection that failed; the text of `requests` could show addresses with secrets in them."""
    import requests
    from urllib3.exceptions import ReadTimeoutError

    permanent = (requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema, requests.exceptions.InvalidURL)
    if isinstance(error, permanent) or not isinstance(error, requests.RequestException):
        return DownloadError("the download leads to an invalid address, or neither http nor https")
    if isinstance(error, requests.TooManyRedirects):
        return DownloadError("the download is redirected in a circle")
    if isinstance(error, requests.exceptions.SSLError):
        cause = _system_error(error)
        return DownloadError("the server's certificate is not accepted", why=cause.strerror if cause else None)
    if isinstance(error, requests.ConnectTimeout):
        return _TransferBrokenError(f"no connection within {patience.connect:g} s")
    if isinstance(error, requests.ReadTimeout) or any(isinstance(cause, ReadTimeoutError) for cause in error.args):
        return _TransferBrokenError(f"the connection stalled: no data for {patience.read:g} s")
    cause = _system_error(error)
    if isinstance(cause, socket.gaierror):  # a machine without a network, where retries only take time
        return DownloadError("the server's name is not known here", why=cause.strerror)
    return _TransferBrokenError(cause.strerror if cause else "the connection broke")


def _system_error(error: BaseException | None) -> OSError | None:
    """The operating system's error, such as "Connection refused", at the end of a chain of causes."""
    while error is not None:
        if isinstance(error, OSError) and error.strerror:
            return error
        error = error.__cause__ or error.__context__
    return None
