"""One blocking connection that sends exactly the requests it is given.

Not the SDK: nothing is negotiated, retried or routed, so both servers get the same bytes.
"""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import Message, decoder, encode

TIMEOUT_S = 60.0
IN_FLIGHT = 100
CLIENT_ID = "differential"

R = TypeVar("R", bound=Message)


class Exchange:
    """A connection to one broker."""

    def __init__(self, host: str, port: int, source: str = "") -> None:
        """`source`: the address of this machine that the connection comes from; empty: any."""
        self._address = (host, port)
        self._source = (source, 0)
        self._socket = socket.create_connection(self._address, TIMEOUT_S, self._source)
        self._correlation_id = 0

    def ask(self, request: Message, response: type[R], version: int) -> R:
        """Send a request of `version` and wait for its response.

        Raises ConnectionError when the server closes the connection; the next request opens
        another one.
        """
        self._correlation_id += 1
        try:
            self._socket.sendall(self._frame(request, version))
            (size,) = struct.unpack(">i", self._read(4))
            body = self._read(size)
        except ConnectionError:
            self._socket.close()
            self._socket = socket.create_connection(self._address, TIMEOUT_S, self._source)
            raise
        header_version = 1 if version >= response.flexible else 0
        header, at = decoder(ResponseHeader, header_version)(body, 0)
        if header.correlation_id != self._correlation_id:
            raise RuntimeError(f"{response.__name__} answers another request: {header}")
        message, end = decoder(response, version)(body, at)
        if end != len(body):
            raise RuntimeError(f"{response.__name__} v{version}: {len(body) - end} bytes are left")
        return message

    def ask_all(self, request: Message, response: type[R], version: int, times: int) -> R:
        """Send a request so many times, some in flight at once; the last response."""
        frame, last = self._frame(request, version), None
        for start in range(0, times, IN_FLIGHT):
            count = min(IN_FLIGHT, times - start)
            self._socket.sendall(frame * count)
            for _ in range(count):
                (size,) = struct.unpack(">i", self._read(4))
                last = self._read(size)
        assert last is not None
        header_version = 1 if version >= response.flexible else 0
        _, at = decoder(ResponseHeader, header_version)(last, 0)
        return decoder(response, version)(last, at)[0]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _frame(self, request: Message, version: int) -> bytes:
        header = RequestHeader(
            request_api_key=type(request).api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
        )
        head = encode(header, 2 if version >= type(request).flexible else 1)
        body = encode(request, version)
        return struct.pack(">i", len(head) + len(body)) + head + body

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts += part
        return bytes(parts)
