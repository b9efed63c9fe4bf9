"""TLS of one listener: its present context, the principals of its clients, the handshake threads.

A reload replaces the context for new connections; connections that are open keep theirs. A
handshake takes a millisecond of public-key arithmetic, in which OpenSSL lets other threads run: a
flight in a thread leaves the loop free.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

from headwater.clock import Clock
from headwater.ports.authorizer import Principal
from headwater.security.principal import PrincipalMapper
from headwater.security.x509 import Certificate, CertificateFormatError, read_certificate

RECEIVE_BYTES = 256 * 1024
"""Encrypted bytes that are received at once, into one buffer for all connections of a listener."""
CERTIFICATES_MAX = 1000
"""Certificates of clients whose fields are kept: to read one takes as long as to verify it."""
CHUNK_BYTES = 256 * 1024
"""How much is encrypted at once, in about 0.2 ms. Per byte 64 KB cost a third more CPU, in system
calls; 1 MB costs more too, in fresh memory. OpenSSL keeps a buffer of this size for each connection
that has once sent as much."""


class FlightRunner(Protocol):
    """Runs the flights of handshakes (`handshake_threads`)."""

    def run(
        self,
        loop: asyncio.AbstractEventLoop,
        handshake: Callable[[], None],
        ended: Callable[[Exception | None], None],
    ) -> bool:
        """Run one, then call `ended` on the loop with its error. False: the broker stops."""
        ...


class TlsEndpoint:
    """The context, pool and buffers of one listener with TLS."""

    def __init__(
        self, context: ssl.SSLContext, mapper: PrincipalMapper, flights: FlightRunner, clock: Clock
    ) -> None:
        self.context = context
        self.mapper = mapper
        self.flights = flights
        self._clock = clock
        self.receive_view = memoryview(bytearray(RECEIVE_BYTES))
        self.scratch = memoryview(bytearray(CHUNK_BYTES))
        """Slices of files are read into it, to be encrypted from there."""

    def principal(self, certificate: bytes, listener: str) -> Principal:
        """The principal of a client that showed this certificate (DER).

        A TLS 1.2 session that is resumed is not verified again, so its certificate may have
        expired. Raises NoMatchingRuleError, CertificateFormatError.
        """
        shown = _fields(certificate)
        if shown.not_after <= datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC):
            raise CertificateFormatError(f"the certificate expired at {shown.not_after}")
        name = self.mapper.name_of(shown.subject)
        return Principal("User", name, listener)


@lru_cache(CERTIFICATES_MAX)
def _fields(certificate: bytes) -> Certificate:
    return read_certificate(certificate)
