"""Files of known hosts, read as `ssh-keygen -F` reads them; and scripts on this machine, run as on a board."""

import re
import subprocess
from pathlib import Path

import paramiko
import pytest
from support.commands import becomes, need

from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.hostkeys import Marker, name_of, read_known_hosts
from edgedeploy.remote.place import Place

KEY = paramiko.ECDSAKey.generate()
LINE = f"{KEY.get_name()} {KEY.get_base64()}"

NAMES = (
    *("plain", "PLAIN", "one,two,three", "*.example.org,!bad.example.org", "!bad.example.org,*.example.org"),
    *("10.0.0.?", "[10.0.0.*]:22??", "[plain]:2222", "fe80::1", "[fe80::1]:2222", "a[bc]d", "a.c", "!only", "*"),
)
HOSTS = (
    *("plain", "Plain", "two", "good.example.org", "bad.example.org", "example.org", "10.0.0.7", "10.0.0.77"),
    *("[10.0.0.7]:2222", "[10.0.0.7]:22", "[plain]:2222", "fe80::1", "[fe80::1]:2222", "abd", "a[bc]d", "abc", "only"),
)


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    path = tmp_path / "known_hosts"
    lines = [f"{names} {LINE}" for names in NAMES]
    odd = ["", "# a comment", f"@other plain {LINE}"]
    odd += ["plain", "plain ssh-rsa", "plain ssh-rsa AAAA", "plain ssh-ed25519 ?"]
    marked = [f"@revoked plain {LINE}", f"@cert-authority *.example.org {LINE}", f"\t plain\t {LINE} x y"]
    path.write_text("\n".join([*lines, *odd, *marked]))
    return path


@pytest.mark.parametrize("hashes", [False, True])
def test_a_host_has_the_lines_that_openssh_finds(known_hosts: Path, hashes: bool) -> None:
    need("ssh-keygen", "openssh-client")
    # It finds lines without a key too, and refuses to hash a file that has some.
    valid = {entry.line for entry in read_known_hosts(known_hosts)}
    lines = enumerate(known_hosts.read_text().split("\n"), 1)
    known_hosts.write_text("".join(f"{line}\n" for number, line in lines if number in valid))
    if hashes:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(known_hosts)], check=True, capture_output=True)
    for host in map(str.lower, HOSTS):  # as ssh has them
        command = ["ssh-keygen", "-F", host, "-f", str(known_hosts)]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found = {int(number) for number in re.findall(r"found: line (\d+)", said)}
        assert {entry.line for entry in read_known_hosts(known_hosts) if entry.is_of(host)} == found, host


def test_lines_have_markers_names_types_and_keys(known_hosts: Path) -> None:
    entries = list(read_known_hosts(known_hosts))
    assert [entry.marker for entry in entries[-3:]] == [Marker.REVOKED, Marker.AUTHORITY, Marker.NONE]
    assert {entry.blob for entry in entries} == {KEY.asbytes()}
    assert [entry.names for entry in entries[: len(NAMES)]] == list(NAMES)
    assert len(entries) == len(NAMES) + 3
    assert list(read_known_hosts(known_hosts.parent / "absent")) == []
    # Ports are part of a name unless they are the usual one.
    assert [name_of("Host", 22), name_of("fe80::1", 2222)] == ["host", "[fe80::1]:2222"]


def test_a_script_gets_its_arguments_and_its_input_and_tells_how_it_ended() -> None:
    done = Place().run('cat; echo "$2 $1"; echo why >&2; exit 3', "a b", "$c", content=[b"x\n", b"y\n"])
    assert (done.code, done.output, done.messages) == (3, b"x\ny\n$c a b\n", "why")


def test_a_script_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >{tmp_path}/pid; wait"
    with pytest.raises(BoardConnectionError, match=r"a command did not end within 1 s"):
        Place().run(script, timeout_s=1)
    ended = Path("/proc", (tmp_path / "pid").read_text().strip(), "exe")
    assert becomes(lambda: not ended.exists())


def test_a_program_ends_when_its_input_does() -> None:
    program = Place().start('echo "$1"; cat >/dev/null; echo over', "ready")
    lines = program.lines()
    assert next(lines) == "ready"
    assert not program.ended
    program.send(b"\n")
    program.close()
    assert program.ended
    assert list(lines) == ["over"]
