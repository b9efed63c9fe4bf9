"""Key stores and trust stores of TLS (Kafka's `DefaultSslEngineFactory`): PEM and PKCS12, as PEM.

A store is a file (`ssl.keystore.location`) or PEM text in the configuration (`ssl.keystore.key` and
`ssl.keystore.certificate.chain`, `ssl.truststore.certificates`; KIP-651). Java's own formats are
refused with the command that converts them.
"""

from __future__ import annotations

import importlib
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headwater.errors import UsageError
from headwater.security.x509 import Certificate, CertificateFormatError, read_certificate

JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""First bytes of JKS and JCEKS stores."""
DER_SEQUENCE = b"\x30"
"""First byte of a PKCS12 store."""
CERTIFICATE_LABEL = "CERTIFICATE"
PEM_LINE_CHARS = 64

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_PKCS12_MODULE = "headwater.security.pkcs12"
"""Loaded for PKCS12 only: `cryptography` costs 0.1 s and 22 MB."""


class TlsValues(Protocol):
    """Values of Kafka's `ssl.*` keys (`headwater.config.keys.Values`)."""

    def string(self, name: str) -> str:
        """The value of a string key; empty when unset."""
        ...

    def strings(self, name: str) -> tuple[str, ...]:
        """The value of a list key."""
        ...


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificate chain."""

    chain: tuple[str, ...]
    """Certificates in PEM, the key's own first."""
    key: str = field(repr=False)
    """The private key in PEM."""
    password: str = field(repr=False)
    """Of the private key; empty when it is not encrypted."""
    where: str
    """The key and the file that it came from, for errors."""

    @property
    def certificate(self) -> Certificate:
        """The key's own certificate. Raises UsageError when it cannot be read."""
        try:
            return read_certificate(ssl.PEM_cert_to_DER_cert(self.chain[0]))
        except (CertificateFormatError, ValueError) as error:
            raise UsageError(f"{self.where}: {error}") from None


def read_key_store(values: TlsValues) -> KeyStore | None:
    """The key store that `ssl.keystore.*` names; None when there is none. Raises UsageError."""
    location = values.string("ssl.keystore.location")
    inline = values.string("ssl.keystore.key")
    chain = values.string("ssl.keystore.certificate.chain")
    if location and (inline or chain):
        raise UsageError(
            "config ssl.keystore.location: ssl.keystore.key and ssl.keystore.certificate.chain "
            "are set too; use the file or the texts"
        )
    if location:
        return _key_store_of_file(values, location)
    if bool(inline) != bool(chain):
        missing = "ssl.keystore.certificate.chain" if inline else "ssl.keystore.key"
        raise UsageError(f"config {missing}: not set; a key and its chain are set together")
    if not inline:
        return None
    where = "config ssl.keystore.key"
    return _key_store(f"{inline}\n{chain}", values.string("ssl.key.password"), where)


def read_trust_store(values: TlsValues) -> tuple[str, ...]:
    """The certificates that `ssl.truststore.*` names, in PEM; empty when none is set.

    Raises UsageError.
    """
    location = values.string("ssl.truststore.location")
    inline = values.string("ssl.truststore.certificates")
    if location and inline:
        raise UsageError(
            "config ssl.truststore.location: ssl.truststore.certificates is set too; use one"
        )
    if not location and not inline:
        return ()
    if inline:
        where, certificates = "config ssl.truststore.certificates", _certificates(inline)
    else:
        where = f"config ssl.truststore.location: {location}"
        data = _read(location, where)
        if _is_pkcs12(data, values.string("ssl.truststore.type"), where):
            password = values.string("ssl.truststore.password")
            _, certificates = _pem_of_pkcs12(data, password, where)
        else:
            certificates = _certificates(_text(data, where))
    if not certificates:
        raise UsageError(f"{where}: no certificate in it; use PEM or PKCS12 with certificates")
    return certificates


def store_files(values: TlsValues) -> tuple[str, ...]:
    """The files that the stores are read from."""
    names = ("ssl.keystore.location", "ssl.truststore.location")
    return tuple(path for path in map(values.string, names) if path)


def _key_store_of_file(values: TlsValues, location: str) -> KeyStore:
    where = f"config ssl.keystore.location: {location}"
    data = _read(location, where)
    if not _is_pkcs12(data, values.string("ssl.keystore.type"), where):
        return _key_store(_text(data, where), values.string("ssl.key.password"), where)
    password = values.string("ssl.keystore.password") or values.string("ssl.key.password")
    key, chain = _pem_of_pkcs12(data, password, where)
    if not key or not chain:
        raise UsageError(f"{where}: no private key with a certificate in it")
    return KeyStore(chain, key, "", where)


def _key_store(pem: str, password: str, where: str) -> KeyStore:
    blocks = _pem_blocks(pem)
    keys = [block for label, block in blocks if label.endswith("PRIVATE KEY")]
    chain = _certificates(pem)
    if len(keys) != 1 or not chain:
        raise UsageError(
            f"{where}: {len(keys)} private keys and {len(chain)} certificates in PEM; "
            "use one key and its chain"
        )
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and not password:
        raise UsageError(f"{where}: the private key is encrypted; set ssl.key.password")
    return KeyStore(chain, keys[0], password if is_encrypted else "", where)


def _read(path: str, where: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}; name a file that can be read") from None
    if data[:4] in JKS_MAGIC:
        raise UsageError(
            f"{where}: Java's own store format is not read; convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    return data


def _is_pkcs12(data: bytes, kind: str, where: str) -> bool:
    """Told by the content. Raises UsageError when the configuration tells something else."""
    found = "PKCS12" if data[:1] == DER_SEQUENCE else "PEM"
    if kind and kind != found:
        raise UsageError(f"{where}: the file holds {found}, the configured type is {kind}")
    return found == "PKCS12"


def _pem_of_pkcs12(data: bytes, password: str, where: str) -> tuple[str, tuple[str, ...]]:
    try:
        pkcs12 = importlib.import_module(_PKCS12_MODULE)
    except ImportError:
        raise UsageError(
            f"{where}: PKCS12 needs the package cryptography; install headwater[security], or use "
            "PEM"
        ) from None
    key, certificates = pkcs12.pem_of_pkcs12(data, password, where)
    return key, certificates


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{where}: neither PEM nor PKCS12") from None


def _certificates(pem: str) -> tuple[str, ...]:
    return tuple(block for label, block in _pem_blocks(pem) if label == CERTIFICATE_LABEL)


def _pem_blocks(text: str) -> list[tuple[str, str]]:
    """(label, block) of each block, also of text whose line breaks a properties file has joined."""
    return [
        (label, f"-----BEGIN {label}-----\n{_lines(body)}\n-----END {label}-----\n")
        for label, body in _PEM_BLOCK.findall(text.replace("\\n", "\n"))
    ]


def _lines(body: str) -> str:
    if ":" in body:  # headers of a key in the format before PKCS8
        return body.strip("\r\n")
    packed = "".join(body.split())
    return "\n".join(
        packed[at : at + PEM_LINE_CHARS] for at in range(0, len(packed), PEM_LINE_CHARS)
    )
