"""A cable between us and a board, which counts what goes through it and can be cut."""

import contextlib
import socket
import threading
from pathlib import Path

from edgedeploy.base.closing import Closing
from edgedeploy.remote.address import Address
from edgedeploy.virtual.board import HOST, VirtualBoard


class Cable(Closing):
    """A port of this machine that leads to a virtual board's, and counts the bytes sent to it; a context manager."""

    def __init__(self, virtual: VirtualBoard, folder: Path, *, cut_after: int | None = None) -> None:
        self.sent = 0
        self._cut_after = cut_after
        self._ends: list[socket.socket] = []
        self._flowing: list[threading.Event] = []
        self._listener = socket.create_server((HOST, 0))
        self._port = int(self._listener.getsockname()[1])
        self._known_hosts = folder / f"known_hosts-{self._port}"
        self.lead_to(virtual)
        self.address = Address(HOST, virtual.user, self._port, virtual.key, self._known_hosts)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def lead_to(self, virtual: VirtualBoard) -> None:
        self._virtual = virtual
        key = virtual.known_hosts.read_text().partition(" ")[2]
        self._known_hosts.write_text(f"[{HOST}]:{self._port} {key}")

    def freeze(self) -> None:
        """Let nothing more through, and tell nobody, as a network out of reach does. What connects later goes on."""
        for flows in self._flowing:
            flows.clear()

    def cut(self) -> None:
        _hang_up(*self._ends)
        for flows in self._flowing:
            flows.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                try:
                    there = socket.create_connection((HOST, self._virtual.port))
                except OSError:  # the board is down
                    here.close()
                    continue
                self._ends += [here, there]
                flows = threading.Event()
                flows.set()
                self._flowing.append(flows)
                threading.Thread(target=self._carry, args=(here, there, flows, True), daemon=True).start()
                threading.Thread(target=self._carry, args=(there, here, flows, False), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, flows: threading.Event, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(4096):
                flows.wait()
                target.sendall(block)
                if counted:
                    self.sent += len(block)
                    if self._cut_after is not None and self.sent >= self._cut_after:
                        self.cut()
        flows.wait()  # an end is news, too
        if counted:  # the end of this connection only: the next one may have begun
            _hang_up(source, target)


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
