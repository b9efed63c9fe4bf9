"""TLS contexts from Kafka's `ssl.*` keys, for listeners and for outgoing connections.

TLS 1.2 has forward secrecy and authenticated encryption only; nobody may renegotiate. Keys reach
OpenSSL through memory: no temporary file holds a secret where the system can avoid it.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from headwater.errors import UsageError
from headwater.security.tls_chain import chain_to_send
from headwater.security.tls_stores import KeyStore, TlsValues, read_key_store, read_trust_store

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
CIPHERS_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
SUITES_1_3 = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
SUITES_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""IANA's name -> OpenSSL's name of the suites of TLS 1.2 that are allowed."""
SUITES_KEY = "ssl.cipher.suites"
CLIENT_AUTH_MODES = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
CLIENT_LISTS = {"ssl.enabled.protocols": (TLS_1_2, TLS_1_3), SUITES_KEY: ()}
CLIENT_STRINGS = {"ssl.endpoint.identification.algorithm": "https", "ssl.protocol": TLS_1_3}
"""Defaults of a client's keys."""


class ClientValues:
    """A client's `ssl.*` properties over Kafka's defaults."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def string(self, name: str) -> str:
        """The value of a string key; empty when unset."""
        return self._properties.get(name, CLIENT_STRINGS.get(name, "")).strip()

    def strings(self, name: str) -> tuple[str, ...]:
        """The value of a list key."""
        if name not in self._properties:
            return CLIENT_LISTS.get(name, ())
        return tuple(part.strip() for part in self._properties[name].split(",") if part.strip())


def server_context(values: TlsValues) -> ssl.SSLContext:
    """The context of a listener with these values. Raises UsageError with key and remedy."""
    store = read_key_store(values)
    if store is None:
        raise UsageError(
            "config ssl.keystore.location: not set; a listener with TLS needs the file of its "
            "private key and certificate chain, in PEM or PKCS12"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_protocols(context, values)
    _load_key(context, store)
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    mode = CLIENT_AUTH_MODES[values.string("ssl.client.auth") or "none"]
    if mode is not ssl.CERT_NONE:
        trusted = read_trust_store(values)
        if not trusted:
            raise UsageError(
                "config ssl.truststore.location: not set; ssl.client.auth needs the certificates "
                "of the authorities whose clients are let in"
            )
        _trust(context, trusted)
        chain = chain_to_send(store, context, trusted)
        if chain != store.chain:
            _load_key(context, replace(store, chain=chain))
        # A resumed session would not show the certificate again, which may have expired meanwhile.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    context.verify_mode = mode
    return context


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """The context of a client with these `ssl.*` properties. Raises UsageError with key and remedy.

    The broker's certificate is checked, and its host name too unless
    `ssl.endpoint.identification.algorithm` is empty.
    """
    return outgoing_context(ClientValues(properties))


def outgoing_context(values: TlsValues) -> ssl.SSLContext:
    """The context of connections to other brokers, from a listener's values. Raises UsageError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_protocols(context, values)
    algorithm = values.string("ssl.endpoint.identification.algorithm")
    if algorithm.lower() not in ("", "https"):
        raise UsageError(
            f"config ssl.endpoint.identification.algorithm: {algorithm!r} is not known; use https, "
            "or nothing to connect to any host whose certificate is trusted"
        )
    context.check_hostname = bool(algorithm)
    trusted = read_trust_store(values)
    if trusted:
        _trust(context, trusted)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    store = read_key_store(values)
    if store is not None:
        _load_key(context, store)
    return context


def _set_protocols(context: ssl.SSLContext, values: TlsValues) -> None:
    enabled = set(values.strings("ssl.enabled.protocols"))
    unknown = enabled - {TLS_1_2, TLS_1_3}
    if unknown or not enabled:
        named = ", ".join(sorted(unknown)) or "nothing"
        raise UsageError(
            f"config ssl.enabled.protocols: {named} is not served; use TLSv1.2, TLSv1.3 or both"
        )
    if values.string("ssl.protocol") == TLS_1_2:
        enabled.discard(TLS_1_3)
    if suites := values.strings(SUITES_KEY):
        enabled &= _set_suites(context, suites)
    else:
        context.set_ciphers(CIPHERS_1_2)
    if not enabled:
        raise UsageError(
            "config ssl.enabled.protocols: ssl.protocol and ssl.cipher.suites leave no version of "
            "TLS; use values that share one"
        )
    versions = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
    context.minimum_version = versions[min(enabled)]
    context.maximum_version = versions[max(enabled)]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _set_suites(context: ssl.SSLContext, suites: tuple[str, ...]) -> set[str]:
    """Allow these suites only; the versions of TLS that they serve."""
    old = [SUITES_1_2[suite] for suite in suites if suite in SUITES_1_2]
    new = SUITES_1_3.intersection(suites)
    unknown = [suite for suite in suites if suite not in SUITES_1_2 and suite not in SUITES_1_3]
    if unknown:
        raise UsageError(
            f"config {SUITES_KEY}: {unknown[0]} is not served; use one of "
            + ", ".join((*sorted(SUITES_1_3), *SUITES_1_2))
        )
    if new and new != SUITES_1_3:
        raise UsageError(
            f"config {SUITES_KEY}: the suites of TLS 1.3 are served together; name all of "
            f"{', '.join(sorted(SUITES_1_3))}, or none for TLS 1.2 only"
        )
    if old:
        context.set_ciphers(":".join(old))
    return ({TLS_1_2} if old else set()) | ({TLS_1_3} if new else set())


def _trust(context: ssl.SSLContext, certificates: tuple[str, ...]) -> None:
    """Trust these certificates, also those that another one has signed, as Java does."""
    try:
        context.load_verify_locations(cadata="".join(certificates))
    except ssl.SSLError as error:
        raise UsageError(
            f"config ssl.truststore.location: a certificate cannot be read: {_reason(error)}"
        ) from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _load_key(context: ssl.SSLContext, store: KeyStore) -> None:
    pem = "".join((store.key, *store.chain)).encode()
    try:
        with _readable(pem) as path:
            context.load_cert_chain(path, password=_password(store))
    except ssl.SSLError as error:
        reason = _reason(error)
        remedy = "the key or a certificate is damaged; issue both anew"
        if reason == "KEY_VALUES_MISMATCH":
            remedy = "the first certificate is not the private key's: put it first"
        elif store.password:
            remedy = "ssl.key.password is wrong, or the key is damaged"
        raise UsageError(f"{store.where}: {remedy} ({reason})") from None


def _password(store: KeyStore) -> Callable[[], str]:
    """A function: without a password OpenSSL would ask for one on the terminal."""
    return lambda: store.password


def _reason(error: ssl.SSLError) -> str:
    return error.reason or "unknown error of OpenSSL"


@contextmanager
def _readable(pem: bytes) -> Iterator[str]:
    """A path under which OpenSSL can read `pem`: of memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("headwater-tls")
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:  # mode 0600, as tempfile makes its files
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            yield file.name
