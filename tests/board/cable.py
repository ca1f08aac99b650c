"""A cable between us and a board, which counts what goes through it and can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType

from edgedeploy.remote.address import Address
from edgedeploy.virtual.board import HOST, VirtualBoard


class Cable:
    """A port of this machine that leads to a virtual board's; a context manager.

    Attributes:
        sent: how many bytes went to the board.
    """

    def __init__(self, virtual: VirtualBoard, folder: Path, *, cut_after: int | None = None) -> None:
        self.sent = 0
        self._virtual = virtual
        self._cut_after = cut_after
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        port = self._listener.getsockname()[1]
        known_hosts = folder / f"known_hosts-{port}"
        key = virtual.known_hosts.read_text().partition(" ")[2]
        known_hosts.write_text(f"[{HOST}]:{port} {key}")
        self.address = Address(HOST, virtual.user, port, virtual.key, known_hosts)

    def __enter__(self) -> Cable:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut it."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                there = socket.create_connection((HOST, self._virtual.port))
                self._ends += [here, there]
                threading.Thread(target=self._carry, args=(here, there, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(there, here, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(4096):
                target.sendall(block)
                if counted:
                    self.sent += len(block)
                    if self._cut_after is not None and self.sent >= self._cut_after:
                        break
        self.cut() if counted else None
