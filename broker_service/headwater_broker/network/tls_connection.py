"""TLS below one client connection of the data plane (Kafka's `SslTransportLayer`).

OpenSSL works in memory; this protocol carries bytes between it and the socket, and decrypts right
into the receive buffer of the `Connection`, which is the same class as without encryption. Each
flight of the handshake runs in a thread. On listeners without SASL the client's certificate, if it
shows one, gives the session its principal.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import cast

from headwater.errors import HeadwaterError
from headwater_broker.network.connection import Connection
from headwater_broker.network.connection_ports import Acceptor
from headwater_broker.network.tls_endpoint import TlsEndpoint
from headwater_broker.network.tls_send_queue import TlsSendQueue
from headwater_broker.network.tls_transport import TlsTransport
from headwater_broker.network.wrong_protocol import HANDSHAKE_RECORD

HANDSHAKE_BYTES_MAX = 128 * 1024
"""More than any certificate chain; a client that has sent more and whose handshake needs still more
is closed. Requests right behind the last flight are no part of it."""
ANSWER_BYTES_MAX = 64 * 1024
"""A client that has TLS itself answer it (key updates, RFC 8446, 4.6.3) with more than this in the
life of a connection is closed at once. An answer has some 30 bytes, and clients update a key once
in many GB."""

logger = logging.getLogger(__name__)


class PlainSide(Connection):
    """The connection on top of TLS."""

    send_queue_class = TlsSendQueue


class TlsConnection(asyncio.BufferedProtocol):
    """One accepted socket with TLS."""

    def __init__(self, listener: Acceptor, endpoint: TlsEndpoint) -> None:
        self._listener = listener
        self._endpoint = endpoint
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = endpoint.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._plain = PlainSide(listener)
        self._receive_view = endpoint.receive_view
        self._is_open = False
        """True from the end of the handshake until the connection closes."""
        self._in_flight = False
        self._received_meanwhile = bytearray()
        """Bytes that came while a thread used `_incoming`."""
        self._is_held = False
        """Nothing more is read from the socket while a thread uses `_incoming`."""
        self._handshake_bytes = 0
        self._is_client_hello = True
        """Whether the client's first byte is that of TLS."""
        self._answer_bytes = 0
        """Bytes that TLS itself has answered since the handshake."""
        self._is_lost = False
        self._below: asyncio.Transport
        self._transport: TlsTransport

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a handshake."""
        self._below = cast(asyncio.Transport, transport)
        self._transport = TlsTransport(self)
        self._plain.connection_made(self._transport)
        self._plain.accepted = self._below

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        self._is_lost = True
        self._is_open = False
        self._plain.connection_lost(exc)
        self._transport.lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer of the listener: its content is taken at once."""
        return self._receive_view

    def buffer_updated(self, nbytes: int) -> None:
        """Encrypted bytes have come."""
        received = self._receive_view[:nbytes]
        if self._is_open:
            self._incoming.write(received)
            self._decrypt()
        else:
            self._handshake_bytes_came(received)

    def eof_received(self) -> bool:
        """The client has closed its side."""
        return self._plain.eof_received() if self._is_open else False

    def pause_writing(self) -> None:
        """The socket's transport has bytes that the kernel does not take."""
        self._plain.pause_writing()

    def resume_writing(self) -> None:
        """The kernel has taken them."""
        self._plain.resume_writing()

    # --- network.tls_transport.TlsChannel

    @property
    def below(self) -> asyncio.Transport:
        """The socket's transport."""
        return self._below

    @property
    def tls(self) -> ssl.SSLObject:
        """OpenSSL's side of the channel."""
        return self._tls

    @property
    def scratch(self) -> memoryview:
        """A buffer for what is to be encrypted next."""
        return self._endpoint.scratch

    def send_encrypted(self) -> None:
        """Pass what OpenSSL has encrypted to the socket."""
        self._below.write(self._outgoing.read())

    def go_on_reading(self) -> None:
        """Decrypt what came before reading was paused: no event of the socket will tell of it."""
        if self._is_open and (self._incoming.pending or self._tls.pending()):
            self._listener.loop.call_soon(self._decrypt)

    def shut(self) -> None:
        """Say goodbye in TLS, then close the socket once everything is sent."""
        if self._is_open:
            self._is_open = False
            try:
                self._tls.unwrap()
            except ssl.SSLError:
                pass  # the client has not said goodbye, and need not
            self.send_encrypted()
        self._below.close()

    # --- handshake

    def _handshake_bytes_came(self, received: memoryview) -> None:
        if not self._handshake_bytes:
            self._is_client_hello = received[0] == HANDSHAKE_RECORD
        if not self._in_flight:
            self._handshake_bytes += len(received)
            self._incoming.write(received)
            self._begin_flight()
            return
        self._received_meanwhile += received
        if len(self._received_meanwhile) > HANDSHAKE_BYTES_MAX and not self._is_held:
            self._is_held = True  # a client may send requests right behind its last flight
            self._below.pause_reading()

    def _begin_flight(self) -> None:
        if self._below.is_closing():
            return
        self._in_flight = True
        loop, handshake = self._listener.loop, self._tls.do_handshake
        if not self._endpoint.flights.run(loop, handshake, self._flight_ended):
            self._below.abort()  # the broker stops

    def _flight_ended(self, error: Exception | None) -> None:
        self._in_flight = False
        if self._is_lost:
            return
        if error is not None and not isinstance(error, ssl.SSLError):
            self._below.abort()
            return
        if self._outgoing.pending:
            self.send_encrypted()
        if self._received_meanwhile:
            self._handshake_bytes += len(self._received_meanwhile)
            self._incoming.write(self._received_meanwhile)
            self._received_meanwhile.clear()
        if self._is_held:
            self._is_held = False
            if not self._below.is_closing():
                self._below.resume_reading()
        if error is None:
            self._opened()
        elif not isinstance(error, ssl.SSLWantReadError):
            self._fail(error)
        elif self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._plain.close("TLS handshake of too many bytes")
        elif self._incoming.pending:
            self._begin_flight()

    def _opened(self) -> None:
        """The handshake is complete."""
        if self._below.is_closing():
            return
        session = self._plain.session
        if not session.security_protocol.uses_sasl:
            certificate = self._tls.getpeercert(binary_form=True)
            try:
                if certificate is not None:
                    session.authenticate(self._endpoint.principal(certificate, session.listener))
            except HeadwaterError as error:
                self._plain.close(f"client certificate: {error}")
                return
            self._listener.authenticated(self._plain)
        self._is_open = True
        self._decrypt()

    # --- requests

    def _decrypt(self) -> None:
        """Decrypt what has come, until the connection reads no more."""
        plain, transport, read = self._plain, self._transport, self._tls.read
        while self._is_open and not transport.is_paused:
            room = plain.get_buffer(-1)
            size = len(room)
            if not size:
                return
            filled, error = 0, None
            while filled < size:
                try:
                    count = cast(int, read(size - filled, room[filled:]))
                except ssl.SSLError as failure:
                    error = failure.with_traceback(None)  # it would hold this frame, which holds it
                    break
                if not count:
                    break
                filled += count
            if self._outgoing.pending and not self._send_answers():
                return
            if filled:
                plain.buffer_updated(filled)
            if filled < size:
                self._stopped(error)
                return

    def _send_answers(self) -> bool:
        """Send what TLS itself answers to what came. False: too much, the connection is closed."""
        self._answer_bytes += self._outgoing.pending
        if self._answer_bytes > ANSWER_BYTES_MAX:
            self._plain.close("too many key updates of TLS")
            self._below.abort()  # the client need not read what waits
            return False
        self.send_encrypted()
        return True

    def _stopped(self, error: ssl.SSLError | None) -> None:
        """OpenSSL has decrypted all it can for now."""
        if error is None or isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            self._plain.eof_received()
            self._plain.close("the client has closed")
        elif not isinstance(error, ssl.SSLWantReadError):
            self._fail(error)

    def _fail(self, error: ssl.SSLError) -> None:
        self._is_open = False
        self._listener.services.meters.connections_closed_malformed += 1
        reason = error.reason or str(error)
        if not self._is_client_hello:
            self._listener.hints.speaks_plaintext(self._plain.session.host)
        else:
            logger.info("TLS of %s on %s failed: %s", self._plain.session.host,
                        self._plain.session.listener, reason)  # fmt: skip
        self._plain.close(f"TLS: {reason}")
