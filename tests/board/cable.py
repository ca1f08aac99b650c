"""A cable between us and a board, which counts what goes through it and can be cut."""

import contextlib
import socket
import threading
from pathlib import Path

from support.listeners import serving_each

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
        self._stack = contextlib.ExitStack()
        self._port = self._stack.enter_context(serving_each(self._lead))
        self._known_hosts = folder / f"known_hosts-{self._port}"
        self.lead_to(virtual)
        self.address = Address(HOST, virtual.user, self._port, virtual.key, self._known_hosts)

    def close(self) -> None:
        self._stack.close()
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

    def _lead(self, here: socket.socket) -> None:
        there = socket.create_connection((HOST, self._virtual.port))
        self._ends += [here, there]
        flows = threading.Event()
        flows.set()
        self._flowing.append(flows)
        threading.Thread(target=self._carry, args=(there, here, flows, False), daemon=True).start()
        self._carry(here, there, flows, True)

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
