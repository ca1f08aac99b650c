"""Host certificates, as PROTOCOL.certkeys of OpenSSH describes them: an authority's signature under a host key."""

from __future__ import annotations

import base64
import time
from collections.abc import Collection

import paramiko
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)


def authority_of(blob: bytes) -> bytes | None:
    """The public key of the authority that a certificate names; None if the certificate cannot be read."""
    certificate = _read(blob)
    return None if certificate is None else _authority(certificate)


def objection(blob: bytes, host: str, authorities: Collection[bytes]) -> str | None:
    """Why a host certificate is not valid for a host; None if it is.

    Stricter than OpenSSH in one point: the host has to be named. Certificates without names, which some versions accept
    for any host, are valid for none.

    Args:
        blob: the certificate, in SSH's wire format.
        host: the name or alias that was asked for, without a port.
        authorities: the public keys of the authorities that are trusted for this host.
    """
    certificate = _read(blob)
    if certificate is None:
        return "its certificate cannot be read"
    if _authority(certificate) not in authorities:
        return "its certificate is signed by another authority"
    try:
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return "the signature of its certificate is wrong"
    if _signature_algorithm(blob) == "ssh-rsa":
        return "its certificate is signed with SHA-1"
    if certificate.type is not SSHCertificateType.HOST:
        return "its certificate is a user's"
    if host.lower().encode() not in certificate.valid_principals:
        names = ", ".join(name.decode(errors="replace") for name in certificate.valid_principals)
        return f"its certificate names {names or 'no host'}, not {host}"
    if certificate.critical_options:
        return "its certificate has critical options"
    now = time.time()
    if now < certificate.valid_after:
        return "its certificate is not valid yet"
    if now >= certificate.valid_before:
        return "its certificate has expired"
    return None


def _read(blob: bytes) -> SSHCertificate | None:
    kind = paramiko.Message(blob).get_string()
    try:
        found = load_ssh_public_identity(kind + b" " + base64.b64encode(blob))
    except (ValueError, UnsupportedAlgorithm):
        return None
    return found if isinstance(found, SSHCertificate) else None


def _authority(certificate: SSHCertificate) -> bytes:
    text = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(text.split()[1])


def _signature_algorithm(blob: bytes) -> str:
    """The algorithm of the signature, which is a certificate's last field."""
    message = paramiko.Message(blob)
    kind = message.get_text()
    # The nonce and the key's own fields; mpints have the form of strings.
    for _ in range(1 + (1 if "ed25519" in kind else 2)):
        message.get_string()
    message.get_int64()  # serial number
    message.get_int()  # type
    for _ in ("key id", "principals"):
        message.get_string()
    message.get_int64()  # valid after
    message.get_int64()  # valid before
    for _ in ("critical options", "extensions", "reserved", "authority"):
        message.get_string()
    return paramiko.Message(message.get_string()).get_text()
