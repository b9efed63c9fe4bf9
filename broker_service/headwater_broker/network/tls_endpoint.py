"""TLS of one listener: its present context, the principals of its clients, the handshake threads.

A reload replaces the context for new connections; connections that are open keep theirs. A
handshake takes a millisecond of public-key arithmetic, in which OpenSSL lets other threads run: a
flight in a thread leaves the loop free.
"""

from __future__ import annotations

import ssl
from concurrent.futures import Executor, ThreadPoolExecutor

from headwater.ports.authorizer import Principal
from headwater.security.principal import PrincipalMapper
from headwater.security.x509 import read_certificate

HANDSHAKE_THREADS = 2
RECEIVE_BYTES = 256 * 1024
"""Encrypted bytes that are received at once, into one buffer for all connections of a listener."""
CHUNK_BYTES = 64 * 1024
"""How much is encrypted at once: with 1 MB it takes twice the time, in fresh memory."""


def handshake_pool() -> ThreadPoolExecutor:
    """The threads for the handshakes of a broker."""
    return ThreadPoolExecutor(HANDSHAKE_THREADS, thread_name_prefix="tls-handshake")


class TlsEndpoint:
    """What the connections of one listener with TLS share."""

    def __init__(self, context: ssl.SSLContext, mapper: PrincipalMapper, pool: Executor) -> None:
        self.context = context
        self.mapper = mapper
        self.pool = pool
        self.receive_view = memoryview(bytearray(RECEIVE_BYTES))
        self.scratch = memoryview(bytearray(CHUNK_BYTES))
        """Slices of files are read into it, to be encrypted from there."""

    def principal(self, certificate: bytes, listener: str) -> Principal:
        """The principal of a client that showed this certificate (DER).

        Raises NoMatchingRuleError, CertificateFormatError.
        """
        name = self.mapper.name_of(read_certificate(certificate).subject)
        return Principal("User", name, listener)
