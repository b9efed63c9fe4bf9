"""Kafka's client keys for security, as a table: what a client may set, and which are secrets."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import UsageError

PREFIXES = ("security.", "sasl.", "ssl.")


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One option of a client."""

    name: str
    doc: str
    default: str = ""
    is_secret: bool = False
    takes_reference: bool = False
    """True where env:, file: and databricks: are understood; so for each secret."""


def _secret(name: str, doc: str) -> ClientKey:
    return ClientKey(name, doc, is_secret=True, takes_reference=True)


def _text(name: str, doc: str) -> ClientKey:
    return ClientKey(name, doc, takes_reference=True)


CLIENT_KEYS = (
    ClientKey("security.protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.", "PLAINTEXT"),
    ClientKey("sasl.mechanism",
              "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.", "GSSAPI"),
    _secret("sasl.jaas.config", "Login module and its options, as Kafka's clients write it."),
    _text("sasl.username", "User of PLAIN and SCRAM, instead of a JAAS line."),
    _secret("sasl.password", "Password of that user."),
    ClientKey("sasl.kerberos.service.name", "First part of the brokers' Kerberos principal."),
    ClientKey("sasl.oauthbearer.token.endpoint.url",
              "https URL that gives tokens for client credentials, or file URL of a token."),
    _text("sasl.oauthbearer.client.credentials.client.id", "The client's id at that endpoint."),
    _secret("sasl.oauthbearer.client.credentials.client.secret", "The client's secret there."),
    ClientKey("sasl.oauthbearer.scope", "Scope of the tokens to ask for."),
    ClientKey("ssl.truststore.location",
              "File with the authorities to trust, PEM or PKCS12; unset: the system's."),
    ClientKey("ssl.truststore.type", "PEM or PKCS12; unset: as the file's content shows."),
    _secret("ssl.truststore.password", "Password of a PKCS12 trust store."),
    _text("ssl.truststore.certificates", "Certificates in PEM, instead of a file."),
    ClientKey("ssl.keystore.location", "File with the client's key and certificate chain (mTLS)."),
    ClientKey("ssl.keystore.type", "PEM or PKCS12; unset: as the file's content shows."),
    _secret("ssl.keystore.password", "Password of a PKCS12 key store."),
    _secret("ssl.keystore.key", "The client's private key in PEM, instead of a file."),
    _text("ssl.keystore.certificate.chain", "Its certificate chain in PEM, instead of a file."),
    _secret("ssl.key.password", "Password of the private key."),
    ClientKey("ssl.endpoint.identification.algorithm",
              "https checks the broker's host name; empty: not.", "https"),
    ClientKey("ssl.enabled.protocols", "Versions of TLS.", "TLSv1.2,TLSv1.3"),
    ClientKey("ssl.protocol", "The highest version of TLS.", "TLSv1.3"),
    ClientKey("ssl.cipher.suites", "Cipher suites by their IANA names; empty: all."),
)  # fmt: skip
BY_NAME = {key.name: key for key in CLIENT_KEYS}
SECRETS = frozenset(key.name for key in CLIENT_KEYS if key.is_secret)

_OTHER_NAMES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
}
"""Names of librdkafka, for the hint."""


def is_security_key(name: str) -> bool:
    """True for a name that belongs to security, known or not."""
    return name.startswith(PREFIXES)


def unknown_key(name: str, known: Iterable[str] = BY_NAME) -> str:
    """The message for a security option that no client has, with the nearest one."""
    other = _OTHER_NAMES.get(name)
    near = [other] if other else difflib.get_close_matches(name, list(known), 1)
    hint = f": did you mean {near[0]}?" if near else f": there are {', '.join(known)}"
    return f"unknown option {name}{hint}"


def security_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The security options among a client's properties. Raises UsageError for an unknown one."""
    found = {name: text for name, text in properties.items() if is_security_key(name)}
    for name in found:
        if name not in BY_NAME:
            raise UsageError(unknown_key(name))
    return found
