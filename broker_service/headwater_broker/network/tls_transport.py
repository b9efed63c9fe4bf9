"""The transport that a connection with TLS writes to: it encrypts, and passes on to the socket's.

Reading is paused here as well as below: encrypted bytes that have come wait in OpenSSL's memory.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from headwater_broker.network.tls_endpoint import CHUNK_BYTES


class TlsChannel(Protocol):
    """The encrypted channel below the transport."""

    @property
    def below(self) -> asyncio.Transport:
        """The socket's transport."""
        ...

    @property
    def tls(self) -> ssl.SSLObject:
        """OpenSSL's side of the channel."""
        ...

    @property
    def scratch(self) -> memoryview:
        """A buffer for what is to be encrypted next."""
        ...

    def send_encrypted(self) -> None:
        """Pass what OpenSSL has encrypted to the socket."""
        ...

    def go_on_reading(self) -> None:
        """Reading was resumed."""
        ...

    def shut(self) -> None:
        """Say goodbye in TLS, then close the socket once everything is sent."""
        ...


class TlsTransport(asyncio.Transport):
    """An `asyncio.Transport` on top of an encrypted channel."""

    def __init__(self, channel: TlsChannel) -> None:
        super().__init__()
        self.is_paused = False
        self.scratch = channel.scratch
        self._channel: TlsChannel | None = channel
        self._below = channel.below
        self._tls = channel.tls
        self._send_encrypted: Callable[[], None] = channel.send_encrypted

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt `data` and send it."""
        write, send = self._tls.write, self._send_encrypted
        if len(data) <= CHUNK_BYTES:
            write(data)
            send()
            return
        view = memoryview(data)
        for at in range(0, len(view), CHUNK_BYTES):
            write(view[at : at + CHUNK_BYTES])
            send()

    def pause_reading(self) -> None:
        """Decrypt nothing more, and read nothing from the socket."""
        if not self.is_paused:
            self.is_paused = True
            self._below.pause_reading()

    def resume_reading(self) -> None:
        """Go on with what has come already, then with the socket."""
        if self.is_paused:
            self.is_paused = False
            self._below.resume_reading()
            if self._channel is not None:
                self._channel.go_on_reading()

    def is_reading(self) -> bool:
        """True unless reading is paused."""
        return not self.is_paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Those of the socket's transport."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that the kernel has not taken yet."""
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """That of the socket's transport."""
        return self._below.get_extra_info(name, default)

    def lost(self) -> None:
        """The socket is gone: let go of the channel, which holds this."""
        self._channel = None
        self._send_encrypted = _nothing

    def is_closing(self) -> bool:
        """True once it is closed."""
        return self._below.is_closing()

    def close(self) -> None:
        """Send what is written, then close."""
        if self._channel is not None:
            self._channel.shut()

    def abort(self) -> None:
        """Close at once."""
        self._below.abort()


def _nothing() -> None:
    """What a lost connection sends."""
