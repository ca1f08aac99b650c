"""Whose host key is trusted: OpenSSH itself is asked the same with the same files."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.commands import Notebook, printed, put
from support.virtual_boards import made_key, new_key, own_servers

from edgedeploy.errors import HostKeyError
from edgedeploy.remote.address import Address, address_of, parse_address
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.hostkeys import known_hosts_file
from edgedeploy.virtual.board import VirtualBoard

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")

# What the tests call the host of which they write files of known hosts.
ALIAS = "desk"


@dataclass
class Server:
    address: Address
    ssh: Path
    key: str

    @property
    def name(self) -> str:
        return f"[127.0.0.1]:{self.address.port}"

    def configure(self, *lines: str, known: str = "", strict: str = "yes") -> None:
        """Write what is configured for the host, and the file of known hosts."""
        stanza = [f"Host {ALIAS}", "HostName 127.0.0.1", f"Port {self.address.port}", f"User {self.address.user}"]
        own = [f"IdentityFile {self.address.key}", "BatchMode yes", f"StrictHostKeyChecking {strict}", *lines]
        (self.ssh / "config").write_text("\n".join([*stanza, *own]) + "\n")
        (self.ssh / "known_hosts").write_text(known)

    def openssh_lets_in(self) -> bool:
        return subprocess.run(["ssh", ALIAS, "true"], capture_output=True, timeout=60, check=False).returncode == 0

    def we_let_in(self) -> bool:
        try:
            Connection(parse_address(ALIAS)).close()
        except HostKeyError:
            return False
        return True

    def is_trusted(self, wanted: bool) -> bool:
        """Whether OpenSSH and we trust the host, or both do not, as is wanted."""
        return (self.openssh_lets_in(), self.we_let_in()) == (wanted, wanted)


@pytest.fixture
def server(own: VirtualBoard, ssh: Path) -> Server:
    return Server(address_of(own), ssh, own.known_hosts.read_text().split(maxsplit=1)[1].strip())


def hashed(name: str, key: str, folder: Path) -> str:
    path = put(folder / "to-hash", f"{name} {key}\n")
    printed("ssh-keygen", "-q", "-H", "-f", path)
    return path.read_text()


KNOWN = {
    "nothing is known": ("", False),
    "the key is known": ("{name} {key}", True),
    "another key of the same type stands before it": ("{name} {other}\n{name} {key}", True),
    "another key is known": ("{name} {other}", False),
    "the name is hashed": ("{hashed}", True),
    "the name is a pattern": ("[127.0.?.*]:* {key}", True),
    "a pattern leaves the host out": ("*,!*127* {key}", False),
    "the name is one of several": ("elsewhere,{name},10.0.0.1 {key}", True),
    "the host's name is known without a port": ("127.0.0.1 {key}", True),
    "another key is known without a port": ("127.0.0.1 {other}", False),
    "lines that say nothing stand before it": (
        "# a\n\nx\n{name}\n{name} ssh-rsa !\n@new {name} {key}\n{name} {key}",
        True,
    ),
    "an authority of other hosts is known": ("@cert-authority *.example.org {other}\n{name} {key}", True),
    "an authority of this host and its key are known": ("@cert-authority * {other}\n{name} {key}", True),
    "an authority of this host is known, and no key": ("@cert-authority * {key}", False),
    "another key is revoked": ("@revoked * {other}\n{name} {key}", True),
    "the key is revoked": ("{name} {key}\n@revoked * {key}", False),
    "the key is revoked, and there is no other line": ("@revoked {name} {key}", False),
    "fields stand apart": ("  {name}\t \t{spaced}   a comment", True),
    "lines end as in Windows": ("{name} {key} x\r\n", True),
    "an unknown type is known": ("{name} ssh-new AAAAB3NzaC1uZXc=\n{name} {key}", True),
}


@pytest.mark.quick("another key of*", "the name is *", "lines*", "an authority of this*", "the key is revoked")
@pytest.mark.parametrize("case", KNOWN)
def test_a_host_key_is_trusted_where_openssh_trusts_it(case: str, server: Server, tmp_path: Path) -> None:
    text, trusted = KNOWN[case]
    values = {"name": server.name, "key": server.key, "other": new_key(), "spaced": server.key.replace(" ", "\t  ")}
    known = text.format(**values, hashed=hashed(server.name, server.key, tmp_path))
    server.configure(known=known)
    assert server.is_trusted(trusted)
    assert not known_hosts_file().exists()
    assert (server.ssh / "known_hosts").read_bytes() == known.encode()


ELSEWHERE = "UserKnownHostsFile {folder}/elsewhere"
CONFIGURED = {
    "UserKnownHostsFile": ([ELSEWHERE], "{name} {key}", True),
    "GlobalKnownHostsFile": (["GlobalKnownHostsFile {folder}/elsewhere"], "{name} {key}", True),
    "one of several files": (["UserKnownHostsFile {folder}/none {folder}/elsewhere"], "{name} {key}", True),
    "a file with a space in its name": (['UserKnownHostsFile "{folder}/a b" {folder}/c'], "{name} {key}", True),
    "HostKeyAlias": ([ELSEWHERE, "HostKeyAlias bench"], "bench {key}", True),
    "HostKeyAlias and the address": ([ELSEWHERE, "HostKeyAlias bench"], "{name} {key}", False),
    "Match": (["Match originalhost desk exec true", ELSEWHERE], "{name} {key}", True),
    "Match of another": (["Match originalhost other", ELSEWHERE], "{name} {key}", False),
    "Include": (["Include {folder}/more"], "{name} {key}", True),
}


@pytest.mark.quick("HostKeyAlias", "Include")
@pytest.mark.parametrize("case", CONFIGURED)
def test_what_is_configured_means_what_it_means_to_openssh(case: str, server: Server, tmp_path: Path) -> None:
    lines, known, trusted = CONFIGURED[case]
    for name in ("elsewhere", "a b"):
        (tmp_path / name).write_text(known.format(name=server.name, key=server.key))
    (tmp_path / "more").write_text(f"UserKnownHostsFile {tmp_path}/elsewhere\n")
    server.configure(*(line.format(folder=tmp_path) for line in lines))
    assert server.is_trusted(trusted)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["a list", "a revocation list", "an absent file", "no list"])
def test_a_key_in_revoked_host_keys_is_refused(form: str, server: Server, tmp_path: Path) -> None:
    public, revoked = tmp_path / "key.pub", tmp_path / "revoked"
    public.write_text(f"# a comment\n{server.key}\n")
    if form == "a list":
        shutil.copy(public, revoked)
    elif form == "no list":
        revoked.write_text(f"{server.name} {new_key()}\n")
    elif form == "a revocation list":
        printed("ssh-keygen", "-q", "-k", "-f", revoked, public)
    server.configure(f"RevokedHostKeys {revoked}", known=f"{server.name} {server.key}")
    assert server.is_trusted(False)
    printed("ssh-keygen", "-q", "-k", "-f", revoked, "/dev/null")
    assert server.is_trusted(True)


@pytest.mark.parametrize(
    ("strict", "known", "why", "hint"),
    [
        ("ask", "# mine\n@revoked * {key}\n", r"is revoked.*line 2 of .*known_hosts", ""),
        ("ask", "@cert-authority * {other}\n", "no trusted certificate.*shows no certificate", "HostCertificate"),
        ("yes", "", "is not known", ""),
    ],
    ids=["a revoked key", "an unknown key of a host with an authority", "an unknown key where the user is strict"],
)
def test_a_key_that_is_refused_is_not_recorded(server: Server, strict: str, known: str, why: str, hint: str) -> None:
    server.configure(strict=strict, known=known.format(key=server.key, other=new_key()))
    with pytest.raises(HostKeyError, match=why) as caught:
        Connection(parse_address(ALIAS))
    assert not known_hosts_file().exists()
    assert any(hint in each for each in caught.value.hints)


def test_an_unknown_key_is_recorded_as_openssh_reads_it(server: Server) -> None:
    server.configure(strict="ask")
    put(known_hosts_file(), "torn")
    notes = Notebook()
    Connection(parse_address(ALIAS), progress=notes).close()
    assert len(notes.lines) == 1
    assert printed("ssh-keygen", "-F", server.name, "-l", "-f", known_hosts_file()).split()[-1] in notes.lines[0]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private key of an authority that signs host keys; its public one lies beside it."""
    return made_key(tmp_path_factory.mktemp("authority") / "key")


@pytest.fixture
def certified(own: VirtualBoard, ssh: Path, tmp_path: Path, authority: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server that shows a certificate, made with options of ssh-keygen and by a key that may be another."""
    with own_servers(own, tmp_path) as start_one, Connection(address_of(own)) as connection:

        def start_certified(*options: str, signed_by: Path = authority) -> Server:
            key = tmp_path / "host_key"
            shutil.copy(own.key, key)
            public = connection.run("cat /etc/ssh/authorized_keys").text
            key.with_suffix(".pub").write_text(public)
            printed("ssh-keygen", "-q", "-s", signed_by, "-I", "board", *options, f"{key}.pub")
            content = (tmp_path / "host_key-cert.pub").read_bytes()
            home = connection.run('mkdir -p own && cat >own/cert && echo "$PWD"', content=[content]).text
            address = start_one(f"HostCertificate {home}/own/cert")
            return Server(address, ssh, " ".join(public.split()[:2]))

        yield start_certified


def authority_line(path: Path, marker: str = "@cert-authority") -> str:
    return f"{marker} 127.0.0.1,[127.0.0.1]:* {path.with_suffix('.pub').read_text()}"


CERTIFICATES = {
    "valid": (["-h", "-n", "127.0.0.1", "-V", "-1h:+1h"], True),
    "of an alias": (["-h", "-n", "bench,other"], False),
    "expired": (["-h", "-n", "127.0.0.1", "-V", "-2h:-1h"], False),
    "not valid yet": (["-h", "-n", "127.0.0.1", "-V", "+1h:+2h"], False),
    "of another host": (["-h", "-n", "10.0.0.1"], False),
}


@pytest.mark.quick("expired")
@pytest.mark.parametrize("case", CERTIFICATES)
def test_a_host_certificate_is_trusted_where_openssh_trusts_it(
    case: str, certified: Callable[..., Server], authority: Path
) -> None:
    options, trusted = CERTIFICATES[case]
    server = certified(*options)
    server.configure(known=authority_line(authority))
    assert server.is_trusted(trusted)
    server.configure(known=authority_line(authority).replace("127.0.0.1,[127.0.0.1]:*", "127.0.0.1"))
    assert server.is_trusted(trusted)
    server.configure("HostKeyAlias bench", known=authority_line(authority).replace("127.0.0.1,", "bench,"))
    assert server.is_trusted(case == "of an alias")
    # A key that is known itself needs no certificate, unless it or its authority is revoked.
    server.configure(known=f"{authority_line(authority)}{server.name} {server.key}\n")
    assert server.is_trusted(True)
    server.configure(known=f"{authority_line(authority)}{authority_line(authority, '@revoked')}")
    assert server.is_trusted(False)
    assert not known_hosts_file().exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_authorities_have_keys_of_other_types(kind: str, certified: Callable[..., Server], tmp_path: Path) -> None:
    signer = made_key(tmp_path / "signer", kind)
    server = certified("-h", "-n", "127.0.0.1", signed_by=signer)
    server.configure(known=authority_line(signer))
    assert server.is_trusted(True)


def test_why_a_certificate_is_refused_is_said(
    certified: Callable[..., Server], authority: Path, tmp_path: Path
) -> None:
    server = certified("-h", "-n", "127.0.0.1", signed_by=made_key(tmp_path / "signer"))
    server.configure(known=authority_line(authority))
    assert not server.openssh_lets_in()
    with pytest.raises(HostKeyError, match="signed by another authority"):
        Connection(parse_address(ALIAS))
    certified("-h").configure(known=authority_line(authority))
    with pytest.raises(HostKeyError, match="names no host, not 127"):
        Connection(parse_address(ALIAS))
