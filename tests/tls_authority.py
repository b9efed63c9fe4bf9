"""A certificate authority for tests: roots, leaves for brokers and clients, as PEM and PKCS12."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
PASSWORD = "changeit"


def name_of(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass(frozen=True)
class Leaf:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    root: x509.Certificate

    @property
    def key_pem(self) -> str:
        pem = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return pem.decode()

    @property
    def encrypted_key_pem(self) -> str:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> str:
        """Key and certificate, as a PEM key store has them."""
        return self.key_pem + self.certificate_pem

    @property
    def pkcs12(self) -> bytes:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        return serialize_key_and_certificates(
            b"leaf", self.key, self.certificate, [self.root], encryption
        )

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path


class Authority:
    """A self-signed root that signs leaves."""

    def __init__(self, name: str = "Test root") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = name_of(name)
        self.root = (
            self._builder(self.name, self.key, datetime.now(UTC) - DAY, datetime.now(UTC) + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @cached_property
    def pem(self) -> str:
        """The root's certificate."""
        return self.root.public_bytes(Encoding.PEM).decode()

    @property
    def java_truststore(self) -> bytes:
        """The root's certificate as keytool keeps it in PKCS12."""
        entry = PKCS12Certificate(self.root, b"root")
        return serialize_java_truststore([entry], BestAvailableEncryption(PASSWORD.encode()))

    def leaf(
        self,
        subject: str | x509.Name = "localhost",
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Leaf:
        """A leaf for servers and clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin = not_before or datetime.now(UTC) - DAY
        builder = self._builder(
            name_of(subject) if isinstance(subject, str) else subject,
            key,
            begin,
            not_after or datetime.now(UTC) + DAY,
        ).add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return Leaf(key, builder.sign(self.key, hashes.SHA256()), self.root)

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begin: datetime,
        end: datetime,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
