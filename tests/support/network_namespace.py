"""Runs commands in a network of their own, where a server for names writes down what is asked for: a program for tests.

Called as `unshare --net --mount python network_namespace.py COMMANDS`, with a JSON list of commands, which are lists;
prints JSON: the exit code and messages of each command, and the names that were asked for.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def name_in(question: bytes) -> tuple[str, int]:
    """The name that a DNS message asks for, and where it ends: RFC 1035, 4.1.2."""
    labels, place = [], 12
    while size := question[place]:
        labels.append(question[place + 1 : place + 1 + size].decode())
        place += 1 + size
    return ".".join(labels), place + 5


def answer(server: socket.socket, asked: list[str]) -> None:
    """Say of every name that it does not exist."""
    while True:
        question, client = server.recvfrom(4096)
        name, end = name_in(question)
        asked.append(name)
        # A response, recursion available, NXDOMAIN; one question, no answers.
        server.sendto(question[:2] + b"\x81\x83\x00\x01" + bytes(6) + question[12:end], client)


def main() -> None:
    bring_up_loopback()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as configuration:
        configuration.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        configuration.flush()
        target = str(Path("/etc/resolv.conf").resolve())
        subprocess.run(["mount", "--bind", configuration.name, target], check=True)
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 53))
        asked: list[str] = []
        threading.Thread(target=answer, args=(server, asked), daemon=True).start()
        ended = []
        for command in json.loads(sys.argv[1]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            ended.append((done.returncode, done.stderr))
    print(json.dumps({"ended": ended, "asked": asked}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
