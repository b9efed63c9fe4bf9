"""The connection between the driver and a broker's task: lines of JSON, plain or by TLS 1.3. No
pyspark.

The driver of a secure cluster shows a certificate whose fingerprint came with the task; only then
does the task show its entry token, and make itself known. One thread reads a channel, others write.
An `SSLSocket` must not be used by two threads at once, so TLS runs on memory here: decrypting and
encrypting hold a lock, waiting for the network does not.
"""

from __future__ import annotations

import hashlib
import io
import socket
import ssl
import threading
from typing import Protocol

from headwater.security.certificates import KeyPair
from headwater.security.tls_context import TLS_1_3, ClientValues, server_context

LINE_BYTES_MAX = 1 << 22
"""A reply has a part of a log."""
RECEIVE_BYTES = 1 << 16


class DriverIdentityError(OSError):
    """Another one than the driver answers at the driver's address."""


class Channel(Protocol):
    """Lines in both directions. Methods raise OSError when the connection is lost."""

    def send(self, line: bytes) -> None:
        """Send a line. Any thread may call."""
        ...

    def receive(self, limit: int = LINE_BYTES_MAX) -> bytes:
        """The next line, empty at the end. One thread calls."""
        ...

    def close(self) -> None:
        """End the connection; the receiving thread, here and there, meets the end."""
        ...


class PlainChannel:
    """Lines without encryption."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, line: bytes) -> None:
        """See `Channel`."""
        with self._sending:
            self._connection.sendall(line)

    def receive(self, limit: int = LINE_BYTES_MAX) -> bytes:
        """See `Channel`."""
        return self._lines.readline(limit)

    def close(self) -> None:
        """See `Channel`."""
        shut(self._connection)


class TlsChannel:
    """Lines by TLS, after the handshake."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, *, driver: bool) -> None:
        """`driver`: this is the driver's side. Raises OSError if the handshake fails."""
        self._connection = connection
        self._sending = threading.Lock()
        self._records = _Records(connection, context, server_side=driver)
        self._lines = io.BufferedReader(self._records)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the peer's certificate, in hex; empty if it showed none."""
        return self._records.fingerprint

    def send(self, line: bytes) -> None:
        """See `Channel`."""
        with self._sending:  # records leave in the order in which they were encrypted
            self._connection.sendall(self._records.encrypted(line))

    def receive(self, limit: int = LINE_BYTES_MAX) -> bytes:
        """See `Channel`."""
        return self._lines.readline(limit)

    def close(self) -> None:
        """See `Channel`."""
        shut(self._connection)


class _Records(io.RawIOBase):
    """TLS over a socket: a raw stream of what the peer has sent, and the encryption of the rest."""

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, *, server_side: bool
    ) -> None:
        self._connection = connection
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=server_side)
        self._lock = threading.Lock()
        while not self._shakes_hands():
            self._receive()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the peer's certificate."""
        shown = self._tls.getpeercert(binary_form=True)
        return hashlib.sha256(shown).hexdigest() if shown else ""

    def readable(self) -> bool:
        """A reader takes it."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # narrower: a view
        """Decrypt into `buffer`, waiting for the peer; 0 at the end."""
        while True:
            with self._lock:
                try:
                    found = self._tls.read(len(buffer))
                    buffer[: len(found)] = found
                    return len(found)
                except ssl.SSLWantReadError:
                    pass  # the record is not complete
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return 0
            self._receive()

    def encrypted(self, text: bytes) -> bytes:
        """The records of `text`, and of what TLS itself has to say."""
        view = memoryview(text)
        with self._lock:
            while view:
                view = view[self._tls.write(view) :]
            return self._to_send.read()

    def _shakes_hands(self) -> bool:
        """One step of the handshake; True after the last one."""
        try:
            self._tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False
        finally:
            self._connection.sendall(self._to_send.read())

    def _receive(self) -> None:
        received = self._connection.recv(RECEIVE_BYTES)
        with self._lock:
            if received:
                self._received.write(received)
            else:
                self._received.write_eof()


def driver_context(identity: KeyPair) -> ssl.SSLContext:
    """The driver's side of TLS."""
    values = {
        "ssl.keystore.key": identity.key.decode(),
        "ssl.keystore.certificate.chain": identity.certificate.decode(),
        "ssl.enabled.protocols": TLS_1_3,
    }
    return server_context(ClientValues(values))


def to_driver(connection: socket.socket, fingerprint: str) -> Channel:
    """The task's side: TLS with the driver that has this fingerprint, plain if it is empty.

    Raises DriverIdentityError, before anything is sent, when another one answers.
    """
    if not fingerprint:
        return PlainChannel(connection)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the fingerprint is more than any authority's word
    channel = TlsChannel(connection, context, driver=False)
    if channel.fingerprint != fingerprint:
        channel.close()
        raise DriverIdentityError("another one than the driver answers: its certificate differs")
    return channel


def shut(connection: socket.socket) -> None:
    """End a connection; a thread that waits for it wakes."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the peer closed it first
    connection.close()
