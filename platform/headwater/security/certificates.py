"""A cluster's own certificate authority and the certificates that it signs: ECDSA P-256, PEM.

The one adapter of `cryptography` for certificates. Values in, values out: files are the callers'
(`headwater.local.security_folder`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater.errors import UsageError

AUTHORITY_DAYS = 3_650
LEAF_DAYS = 90
RENEWAL_SHARE = 2 / 3
"""A certificate is renewed when this share of its lifetime has passed."""
CLOCK_SKEW = timedelta(minutes=10)
"""A new certificate is valid so much earlier: other machines' clocks may be behind."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, each as PEM. The key is not in `repr`."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose certificate it is: its common name, and the hosts by which clients reach it."""

    common_name: str
    hosts: tuple[str, ...] = ()
    """Host names and IP addresses (subject alternative names)."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a certificate says; times are milliseconds since 1970."""

    subject: str
    """The distinguished name in RFC 2253's form, as Kafka's mapping rules see it."""
    issuer: str
    serial: int
    not_before_ms: int
    not_after_ms: int
    hosts: tuple[str, ...]
    sha256: str

    @property
    def renewal_ms(self) -> int:
        """From this time on the certificate should be renewed."""
        lifetime_ms = self.not_after_ms - self.not_before_ms
        return self.not_before_ms + round(lifetime_ms * RENEWAL_SHARE)


def new_authority(name: str, now_ms: int) -> KeyPair:
    """A new certificate authority, which signs leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _dated(now_ms, AUTHORITY_DAYS)
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate.public_bytes(Encoding.PEM), _key_pem(key))


def issue(authority: KeyPair, subject: Subject, now_ms: int, days: int = LEAF_DAYS) -> KeyPair:
    """A new key and its certificate, for servers and clients."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _leaf(authority, key.public_key(), subject, now_ms, days)
    return KeyPair(certificate, _key_pem(key))


def signing_request(common_name: str) -> KeyPair:
    """A certificate signing request (as `certificate`) and its key, which stays on its machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(common_name))
    request = builder.sign(key, hashes.SHA256())
    return KeyPair(request.public_bytes(Encoding.PEM), _key_pem(key))


def sign(
    authority: KeyPair, request: bytes, subject: Subject, now_ms: int, days: int = LEAF_DAYS
) -> bytes:
    """The certificate of a signing request, as PEM. `subject` decides the names, the request only
    brings the key. Raises UsageError for a request that is not one, or has no P-256 key."""
    try:
        found = x509.load_pem_x509_csr(request)
        key, is_valid = found.public_key(), found.is_signature_valid
    except ValueError as error:
        raise UsageError(f"this is no certificate signing request: {error}") from error
    if not is_valid or not isinstance(key, ec.EllipticCurvePublicKey):
        raise UsageError("the signing request must be signed with its own ECDSA key")
    if not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"the signing request has a key on {key.curve.name}: use P-256")
    return _leaf(authority, key, subject, now_ms, days)


def certificate_facts(pem: bytes) -> CertificateFacts:
    """What the first certificate of a PEM text says. Raises UsageError if there is none."""
    try:
        found = x509.load_pem_x509_certificates(pem)[0]
    except (ValueError, IndexError) as error:
        raise UsageError(f"no certificate in PEM: {error}") from error
    return CertificateFacts(
        subject=found.subject.rfc4514_string(),
        issuer=found.issuer.rfc4514_string(),
        serial=found.serial_number,
        not_before_ms=_ms(found.not_valid_before_utc),
        not_after_ms=_ms(found.not_valid_after_utc),
        hosts=_hosts_of(found),
        sha256=found.fingerprint(hashes.SHA256()).hex(),
    )


def split_certificates(pem: bytes) -> tuple[bytes, ...]:
    """Each certificate of a PEM text as a text of its own. Raises UsageError if there is none."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise UsageError(f"no certificate in PEM: {error}") from error
    return tuple(certificate.public_bytes(Encoding.PEM) for certificate in found)


def _leaf(
    authority: KeyPair, key: ec.EllipticCurvePublicKey, subject: Subject, now_ms: int, days: int
) -> bytes:
    """A certificate that the authority signs, valid for `days` but not longer than itself."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey), "authorities are ECDSA"
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _dated(now_ms, days)
        .subject_name(_name(subject.common_name))
        .issuer_name(issuer.subject)
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False
        )
    )
    if subject.hosts:
        names = x509.SubjectAlternativeName(_alternative_names(subject.hosts))
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _dated(now_ms: int, days: int) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms // 1_000, UTC)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host.strip("[]"))))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(
        str(name.value) for name in found if isinstance(name, x509.DNSName | x509.IPAddress)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _ms(when: datetime) -> int:
    return round(when.timestamp() * 1_000)
