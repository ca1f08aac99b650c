"""Logging in: with the user's keys and configuration, to boards whose host keys are known."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from cable import Cable
from support.commands import Notebook, becomes, executable, need, printed, put, started
from support.listeners import listening, serving_each
from support.virtual_boards import Start, made_key, new_key, root_of, sleep_after_greeting, stanza, write_config

from edgedeploy.errors import BoardConnectionError, HostKeyError, InputError, LoginError, UnknownNameError
from edgedeploy.remote.address import Address, address_of, parse_address
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe
from edgedeploy.remote.hostkeys import known_hosts_file
from edgedeploy.remote.login import destination
from edgedeploy.remote.tunnel import backward, forward
from edgedeploy.virtual.board import VirtualBoard, down

pytestmark = pytest.mark.usefixtures("ssh")


@pytest.fixture
def connection(own: VirtualBoard) -> Iterator[Connection]:
    with Connection(address_of(own)) as connection:
        yield connection


def like_any_other(board: VirtualBoard) -> Address:
    """The address of a virtual board, with its key but without trust in its host key."""
    return replace(address_of(board), known_hosts=None, name=None)


def logged_in(address: Address | str, **options: object) -> str:
    with Connection(parse_address(address) if isinstance(address, str) else address, **options) as connection:
        return connection.run("hostname").text


def refused(address: Address | str, error: type[BoardConnectionError], why: str, **options: object) -> tuple[str, ...]:
    """The hints of the error that logging in ends with."""
    with pytest.raises(error, match=why) as caught:
        logged_in(address, **options)
    return caught.value.hints


def test_runs_scripts_with_arguments_that_no_shell_reads(connection: Connection) -> None:
    odd = ["a b", "$HOME", "'", '"', "`id`", "*", "\\", "ü", ""]
    done = connection.run("for each; do printf '%s|' \"$each\"; done; echo err >&2; exit 7", *odd)
    assert (done.code, done.output.decode(), done.messages) == (7, "|".join(odd) + "|", "err")


def test_content_arrives_as_it_was_sent(connection: Connection) -> None:
    content = bytes(range(256)) * 5000
    counted: list[int] = []
    assert connection.run("cat", content=[content], advance=counted.append).output == content
    assert sum(counted) == len(content)


def test_a_command_that_wants_no_more_input_is_no_broken_connection(connection: Connection) -> None:
    assert connection.run("exit 3", content=[bytes(32 << 20)]).code == 3
    assert connection.run("echo on").text == "on"


def test_a_connection_that_breaks_after_the_last_byte_of_the_input_is_named(connection: Connection) -> None:
    def content() -> Iterator[bytes]:
        yield b"all of it"
        connection._transport.sock.shutdown(socket.SHUT_WR)

    with pytest.raises(BoardConnectionError, match="broke"):
        connection.run("cat; sleep 5", content=content())


def test_a_server_that_greets_and_then_says_nothing_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgedeploy.remote.login.CONNECT_S", 0.5)
    with (
        serving_each(sleep_after_greeting) as port,
        pytest.raises(BoardConnectionError, match=r"cannot be reached.*did not answer within 0\.5 s"),
    ):
        Connection(Address("127.0.0.1", "pi", port))


def test_an_unknown_host_key_is_refused_on_request_or_recorded_once_and_shown(own: VirtualBoard) -> None:
    refused(like_any_other(own), HostKeyError, "not known.*SHA256:", strict=True)
    assert not known_hosts_file().exists()
    notes = Notebook()
    assert logged_in(like_any_other(own), progress=notes) == "own"
    fingerprint = paramiko.ECDSAKey(filename=str(own.folder / "etc/ssh/host_key")).fingerprint
    assert len(notes.lines) == 1
    assert fingerprint in notes.lines[0]
    assert logged_in(like_any_other(own), progress=notes, strict=True) == "own"
    assert len(notes.lines) == 1
    assert len(known_hosts_file().read_text().splitlines()) == 1


def other_key(board: VirtualBoard) -> str:
    return f"[127.0.0.1]:{board.port} {new_key()}\n"


@pytest.mark.parametrize("whose", ["edgedeploy's", "the user's"])
def test_a_changed_host_key_is_refused_with_the_remedy(own: VirtualBoard, ssh: Path, whose: str) -> None:
    path = known_hosts_file() if whose == "edgedeploy's" else ssh / "known_hosts"
    put(path, other_key(own))
    hints = refused(like_any_other(own), HostKeyError, "has changed")
    [remedy] = [hint for hint in hints if "ssh-keygen" in hint]
    need("ssh-keygen", "openssh-client")
    subprocess.run(remedy.partition(": ")[2], shell=True, check=True, capture_output=True)
    assert logged_in(like_any_other(own)) == "own"


def test_a_jump_host_is_gone_through_and_its_host_key_checked(own: VirtualBoard, start: Start, ssh: Path) -> None:
    behind = start("local", name="second")
    write_config(ssh, stanza("jump", own), stanza("behind", behind, more="ProxyJump jump"))
    notes = Notebook()
    assert logged_in("behind", progress=notes) == "second"
    assert len(notes.lines) == 2
    known = [line for line in known_hosts_file().read_text().splitlines(True) if f":{own.port} " not in line]
    known_hosts_file().write_text("".join([*known, other_key(own)]))
    refused("behind", HostKeyError, str(own.port))


def test_jump_hosts_are_used_in_their_order(own: VirtualBoard, start: Start, ssh: Path, tmp_path: Path) -> None:
    """As OpenSSH does: the second board is asked for the third, and each is known under the name that it has there."""
    first, second, third = own, start("local", name="second"), start("local", name="third")
    aliases = [stanza("one", first), stanza("two", second, more="ProxyJump none")]
    target = stanza("three", third, more="ProxyJump one,two")
    log = tmp_path / "asked"
    # Each name is asked of OpenSSH once, and on the way to two it is told to go through one.
    program = tmp_path / "bin" / "ssh"
    program.write_text(program.read_text().replace("exec ", f'echo "$@" >>{log}\nexec ', 1))
    write_config(ssh, *aliases, target, "Host *\n StrictHostKeyChecking no\n BatchMode yes")
    assert logged_in("three") == "third"
    assert log.read_text().splitlines() == ["-T -G -- three", "-T -G -J one -- two", "-T -G -- one"]
    assert printed("ssh", "three", "hostname") == "third\n"


def test_a_jump_host_may_have_the_name_of_the_board(own: VirtualBoard, start: Start, ssh: Path) -> None:
    behind = start("local", name="second")
    jump = f"ProxyJump {own.user}@127.0.0.1:{own.port}"
    write_config(ssh, stanza("behind", behind, more=jump), f"Host 127.0.0.1\n IdentityFile {own.key}\n")
    notes = Notebook()
    assert logged_in("behind", progress=notes) == "second"
    assert [str(own.port) in notes.lines[0], str(behind.port) in notes.lines[1]] == [True, True]


def test_no_jump_host_is_one_that_is_called_none(own: VirtualBoard, ssh: Path) -> None:
    write_config(ssh, stanza("desk", own, more="ProxyJump none"), "Host *\n ProxyJump nowhere.invalid\n")
    assert logged_in("desk") == "own"
    assert destination(parse_address("desk")) == ("127.0.0.1", own.port)


def test_jump_hosts_in_a_circle_are_named(own: VirtualBoard, ssh: Path) -> None:
    write_config(ssh, stanza("one", own, more="ProxyJump two"), stanza("two", own, more="ProxyJump one"))
    refused("one", BoardConnectionError, "circle: one is reached through two is reached through one")


def test_a_proxy_command_is_run_by_a_shell(own: VirtualBoard, ssh: Path) -> None:
    """Here OpenSSH's own connection to the same board."""
    relay = "ssh -o StrictHostKeyChecking=no -W %h:%p jump | cat"
    write_config(ssh, stanza("jump", own), stanza("desk", own, more=f"ProxyCommand {relay}"))
    assert destination(parse_address("desk")) is None
    assert logged_in("desk") == "own"
    write_config(ssh, stanza("desk", own, more="ProxyCommand echo cannot reach %h >&2; exit 1"))
    refused("desk", BoardConnectionError, "desk cannot be reached: cannot reach 127.0.0.1")


def test_a_configuration_that_openssh_refuses_is_refused_with_its_words(ssh: Path) -> None:
    write_config(ssh, "NoSuchOption yes")
    refused("desk", BoardConnectionError, "(?s)OpenSSH refuses.*nosuchoption")


def test_without_openssh_its_configuration_is_ignored_and_a_note_says_so(
    own: VirtualBoard, ssh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_config(ssh, stanza("desk", own))
    shutil.copy(own.key, ssh / "id_ed25519")
    monkeypatch.setenv("PATH", str(tmp_path))
    notes = Notebook()
    assert logged_in(parse_address(f"{own.user}@127.0.0.1:{own.port}"), progress=notes) == "own"
    assert "config is ignored: OpenSSH is not installed here" in notes.lines[0]
    refused("desk", BoardConnectionError, "unknown host desk")


def test_identities_only_offers_configured_keys(own: VirtualBoard, ssh: Path, agent: Callable[..., None]) -> None:
    """sshd ends a login after six keys; OpenSSH offers those of the agent that are configured first."""
    others = [str(made_key(ssh / f"other{number}")) for number in range(6)]
    agent(*others, own.key)
    write_config(ssh, stanza("desk", own, key=False))
    refused("desk", BoardConnectionError, "refuses the login")
    write_config(ssh, stanza("desk", own, key=False, more=f"IdentityFile {ssh}/mine"))
    shutil.copy(own.key, ssh / "mine")
    shutil.copy(own.folder / "etc/ssh/authorized_keys", ssh / "mine.pub")
    assert logged_in("desk") == "own"
    write_config(ssh, stanza("desk", own, more="IdentitiesOnly yes"))
    assert logged_in("desk") == "own"


def test_a_key_that_needs_its_passphrase_is_named(own: VirtualBoard, ssh: Path) -> None:
    locked = made_key(ssh / "id_ed25519", passphrase="secret")
    write_config(ssh, stanza("desk", own, key=False, more=f"IdentityFile {locked}"))
    assert refused("desk", LoginError, "no key to offer")[0].endswith(f"ssh-add {locked}")


def test_keys_of_the_ssh_agent_are_offered(own: VirtualBoard, ssh: Path, agent: Callable[..., None]) -> None:
    write_config(ssh, stanza("desk", own, key=False))
    refused("desk", BoardConnectionError, "refuses the login")
    agent(own.key)
    assert logged_in("desk") == "own"
    write_config(ssh, stanza("desk", own, key=False, more="IdentityAgent none"))
    refused("desk", LoginError, "no key to offer")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    need("ssh-agent", "openssh-client")
    socket = tmp_path / "agent"
    with started("ssh-agent", "-D", "-a", socket, stdout=subprocess.DEVNULL) as process:

        def hold(*keys: Path) -> None:
            while not socket.exists():
                assert process.poll() is None
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            printed("ssh-add", "-q", *keys)

        yield hold


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"host": "no-such-board.invalid"}, "unknown host"),
        ({"port": 1}, "cannot be reached: Connection refused"),
        ({"user": "nobody-here"}, "refuses the login"),
    ],
    ids=["no such host", "nothing listens", "unknown user"],
)
def test_says_why_a_board_is_not_reached(own: VirtualBoard, wrong: dict[str, Any], message: str) -> None:
    assert refused(replace(like_any_other(own), **wrong), BoardConnectionError, message)


def open_ends() -> tuple[int, int]:
    return sum(path.is_socket() for path in Path("/proc/self/fd").iterdir()), threading.active_count()


@pytest.mark.quick("no key is taken", "the jump host's is")
@pytest.mark.parametrize("cause", ["no key is taken", "the host key is refused", "no greeting", "the jump host's is"])
def test_logins_that_fail_leave_nothing_open(own: VirtualBoard, start: Start, ssh: Path, cause: str) -> None:
    """sshd drops new logins while ten do not come to an end (MaxStartups); each failure is one more that would not."""
    behind = stanza("behind", own, more=f"ProxyCommand {sys.executable} -c 'print(1); input()'")
    if cause == "the jump host's is":
        behind = stanza("behind", own, more="ProxyJump desk")
        put(known_hosts_file(), f"@revoked * {own.known_hosts.read_text().split(maxsplit=1)[1]}")
    write_config(ssh, stanza("desk", own), behind)
    address = parse_address("desk" if cause == "the host key is refused" else "behind")
    if cause == "no key is taken":
        address = replace(like_any_other(own), user="nobody-here")
    before = open_ends()
    for _ in range(12):
        with pytest.raises(BoardConnectionError) as caught:
            logged_in(address, strict=True)
        assert ("cannot be reached" in str(caught.value)) is (cause == "no greeting")
    assert becomes(lambda: all(now <= then for now, then in zip(open_ends(), before, strict=True)))
    assert logged_in(replace(address_of(own), name=None)) == "own"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("-oProxyCommand=x", "begins with a dash"),
        ("pi@-host", "begins with a dash"),
        ("pi:secret@host", "a password"),
        ("pi:secret@host:0", "a password"),
        ("ssh://pi@host", "a URL"),
        ("a b", "a blank"),
        ("pi@host:0", "its port"),
        ("host:99999", "its port"),
        ("pi@[fe80::1]:ssh", "its port"),
        ("pi@", "is empty"),
        ("x;y", "a character"),
        ("[x]y", "a character"),
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        parse_address(text)
    assert "secret" not in str(caught.value)


def test_addresses_have_their_usual_forms() -> None:
    assert parse_address("host") == Address("host")
    assert parse_address("pi@10.0.0.7:2222") == Address("10.0.0.7", "pi", 2222)
    assert parse_address("pi@[fe80::1]:22") == Address("fe80::1", "pi", 22)
    assert parse_address("pi@[fe80::1%eth0]:2222") == Address("fe80::1%eth0", "pi", 2222)
    assert str(parse_address("pi@[fe80::1]:2222")) == "pi@[fe80::1]:2222"
    with pytest.raises(UnknownNameError):
        parse_address("virtual:absent")


@pytest.mark.parametrize("text", ["fe80::1", "pi@2001:db8::7", "fe80::1:22", "::1", "fe80::1%eth0", "pi:fe80@host"])
def test_an_ipv6_address_without_brackets_gets_a_hint(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert ("brackets" in caught.value.hints[0]) is (text != "pi:fe80@host")


CHATTY = "echo you have mail; printf 'no end of line'; echo warning >&2"


@pytest.mark.parametrize("who", ["~/.ssh/rc", pytest.param("the login shell", marks=pytest.mark.slow)])
def test_what_is_printed_before_a_command_is_no_answer(start: Start, who: str) -> None:
    """sshd runs ~/.ssh/rc, and bash its own start-up file, before each command and before SFTP."""
    board = start("local", name="chatty")
    root = root_of(board)
    if who == "~/.ssh/rc":
        executable(root / "home" / board.user / ".ssh" / "rc", CHATTY)
    else:
        executable(root / "bin" / "chatty", f'{CHATTY}\nexec /bin/sh "$@"')
        accounts = root / "etc" / "passwd"
        accounts.write_text(accounts.read_text().replace(f"{board.user}:/bin/sh", f"{board.user}:/bin/chatty"))
    try:
        with Connection(address_of(board)) as connection:
            channel = connection._transport.open_session()
            channel.exec_command("true")
            assert b"you have mail" in channel.makefile("rb").read()
            done = connection.run("echo out; echo err >&2; exit 7")
            assert (done.code, done.output, done.messages) == (7, b"out\n", "err")
            channel = connection.open("cat; echo end")
            channel.sendall(b"content")
            channel.shutdown_write()
            assert channel.makefile("rb").read() == b"contentend\n"
            connection.run("ln -s a old && ln -s b new")
            connection.rename("new", "old")
            assert connection.run("readlink old").text == "b"
            assert probe(connection).glibc == "2.36"
    finally:
        down(board)


def test_a_board_says_what_it_is_before_anything_was_put_there(connection: Connection) -> None:
    connection.run("rm -rf .local")
    facts = probe(connection)
    assert facts.agent is None
    assert (facts.elf_machine, facts.elf_class) == ("EM_X86_64", 64) or facts.machine != "x86_64"
    assert facts.glibc == "2.36"
    assert facts.cores
    assert facts.features
    assert facts.free_bytes > 500 << 20


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rpi4", ("aarch64", "EM_AARCH64", 64, None)),
        pytest.param("rpi-armhf", ("armv7l", "EM_ARM", 32, "hard"), marks=pytest.mark.slow),
        pytest.param("visionfive2", ("riscv64", "EM_RISCV", 64, "hard"), marks=pytest.mark.slow),
    ],
)
def test_boards_of_other_architectures_say_so(start: Start, name: str, expected: tuple[object, ...]) -> None:
    with Connection(address_of(start(name))) as connection:
        facts = probe(connection)
    assert (facts.machine, facts.elf_machine, facts.elf_class, facts.float_abi) == expected


# TCP through the connection, in both directions, and SSH servers that do not allow it.

LOOPBACK = "127.0.0.1"
MEBIBYTE = os.urandom(1 << 20)


@pytest.fixture(scope="module")
def virtual(start: Start) -> VirtualBoard:
    return start("local", name="tunnel")


def echo() -> AbstractContextManager[int]:
    """A server of ours that sends back what it gets, to the end of it; boards here share our loopback interface."""
    return serving_each(lambda stream: stream.sendall(received_from(stream)))


def received_from(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(1 << 16), b""))


def echoed(port: int, content: bytes) -> bytes:
    with socket.create_connection((LOOPBACK, port), 20) as stream:
        sender = threading.Thread(target=lambda: (stream.sendall(content), stream.shutdown(socket.SHUT_WR)))
        sender.start()
        received = received_from(stream)
        sender.join()
    return received


def tunnelled(direction: str, connection: Connection, port: int) -> AbstractContextManager[int]:
    return forward(connection, lambda: port) if direction == "forward" else backward(connection, port)


DIRECTIONS = pytest.mark.parametrize("direction", ["forward", "backward"])


@DIRECTIONS
def test_bytes_go_through_and_so_does_their_end(virtual: VirtualBoard, direction: str) -> None:
    with echo() as port, Connection(address_of(virtual)) as connection:
        with tunnelled(direction, connection, port) as near:
            assert near != port
            assert echoed(near, MEBIBYTE) == MEBIBYTE
            results: list[bytes] = []
            threads = [threading.Thread(target=lambda: results.append(echoed(near, b"ab"))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert results == [b"ab"] * 8
        assert becomes(lambda: not listening(near))
        assert connection.run("echo still there").text == "still there"


@DIRECTIONS
def test_nobody_at_the_other_end_is_an_end(virtual: VirtualBoard, direction: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        nobody = int(listener.getsockname()[1])
    with Connection(address_of(virtual)) as connection, tunnelled(direction, connection, nobody) as near:
        for _ in range(2):
            with socket.create_connection((LOOPBACK, near), 20) as stream:
                assert end_of(stream)
        assert connection.alive


@DIRECTIONS
def test_connections_that_stand_end_with_the_tunnel_and_no_thread_stays(virtual: VirtualBoard, direction: str) -> None:
    with echo() as port, Connection(address_of(virtual)) as connection:
        before = threading.active_count()
        with tunnelled(direction, connection, port) as near:
            stream = socket.create_connection((LOOPBACK, near), 20)
            stream.sendall(b"x")
            time.sleep(0.3)
        with stream:  # which ends, after what was on its way back
            assert b"".join(iter(lambda: stream.recv(1), b"")) in (b"", b"x")
        # The echo's thread for that connection ends with it.
        assert becomes(lambda: threading.active_count() <= before)


@DIRECTIONS
def test_a_connection_that_breaks_ends_what_went_through(virtual: VirtualBoard, direction: str, tmp_path: Path) -> None:
    with echo() as port, Cable(virtual, tmp_path) as cable, Connection(cable.address) as connection:
        with tunnelled(direction, connection, port) as near, socket.create_connection((LOOPBACK, near), 20) as stream:
            stream.sendall(b"x")
            time.sleep(0.3)
            cable.cut()
            assert end_of(stream)
        assert becomes(lambda: not listening(near))


def end_of(stream: socket.socket) -> bool:
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def test_a_port_that_is_asked_for_is_had_if_it_is_free(virtual: VirtualBoard) -> None:
    with Connection(address_of(virtual)) as connection, echo() as port:
        with forward(connection, lambda: port) as free:
            pass
        with forward(connection, lambda: port, free) as near:
            assert near == free
            with forward(connection, lambda: port, free) as other:
                assert other != free
                assert echoed(other, b"x") == b"x"


@pytest.mark.parametrize(
    ("setting", "direction", "why"),
    [
        ("AllowTcpForwarding no", "forward", "forwards no ports"),
        ("AllowTcpForwarding no", "backward", "forwards no ports"),
        ("GatewayPorts yes", "backward", "opens forwarded ports"),
    ],
)
def test_unfit_ssh_servers_are_refused(sshd: Callable[..., Address], setting: str, direction: str, why: str) -> None:
    with Connection(sshd(setting)) as connection:
        tunnel = tunnelled(direction, connection, 9)
        with pytest.raises(BoardConnectionError, match=why) as refused, tunnel:
            pass
    assert setting.split()[0] in refused.value.hints[0]
