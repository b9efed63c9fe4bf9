"""A blocking connection to a broker: plain sockets, replies received into the caller's buffer.

For Spark tasks and tools that need no event loop. One thread at a time.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import TypeVar

from headwater import __version__
from headwater.client.core.sasl import SaslResponse, sasl_calls
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials, SaslExchange
from headwater.sockets import tune
from headwater.system import SystemClock
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message

REPLY_BYTES_MAX = 1 << 30
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_SIZE = struct.Struct(">i")
HANDSHAKE_TIMEOUT_S = 5.0
"""A broker that hangs accepts connections (its kernel does) and answers nothing."""
_HEAD_BYTES = 4

R = TypeVar("R", bound=Message)


class BlockingConnection:
    """Requests out, replies in, in order. Raises OSError (TimeoutError, ConnectionError)."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        self.is_open = True
        self._correlation_id = 0
        self._clock = SystemClock()
        self._free_at = 0.0
        self._head = bytearray(_HEAD_BYTES)
        self.socket = socket.create_connection((host, port), timeout=HANDSHAKE_TIMEOUT_S)
        tune(self.socket)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        try:
            if (tls := credentials.tls()) is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
            self._negotiate()
            if (exchange := credentials.sasl()) is not None:
                self._authenticate(exchange)
            self.socket.settimeout(timeout_s)
        except BaseException:
            self.close()
            raise

    def _negotiate(self) -> None:
        request = ApiVersionsRequest(
            client_software_name="headwater", client_software_version=__version__
        )
        version = 4
        correlation_id = self.send(request, version)
        raw = self.receive()
        if int.from_bytes(raw[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
            correlation_id = self.send(ApiVersionsRequest(), version)
            raw = self.receive()
        reply = decode_response(ApiVersionsResponse, version, raw, correlation_id)
        self.versions = {a.api_key: (a.min_version, a.max_version) for a in reply.api_keys}

    def _authenticate(self, exchange: SaslExchange) -> None:
        calls = sasl_calls(exchange)
        response: SaslResponse | None = None
        while True:
            try:
                call = next(calls) if response is None else calls.send(response)
            except StopIteration:
                return
            request, reply_type, version = call
            correlation_id = self.send(request, version)
            response = decode_response(reply_type, version, self.receive(), correlation_id)

    def version_for(self, cls: type[Message], cap: int | None = None) -> int:
        """The highest version both sides know, at most `cap`."""
        low, high = cls.versions
        high = high if cap is None else min(high, cap)
        served = self.versions.get(cls.api_key, (1, 0))
        if served[0] > min(high, served[1]) or served[1] < low:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{cls.__name__} {low}-{high}, {self.host}:{self.port} serves {served}",
            )
        return min(high, served[1])

    def hold(self, reply: Message) -> None:
        """Send nothing for the throttle time that a reply tells: it would not be read (KIP-219)."""
        told_s = float(getattr(reply, "throttle_time_ms", 0)) / 1000
        if told_s > 0:
            self._free_at = max(self._free_at, self._clock.monotonic() + told_s)

    def send(self, request: Message, version: int) -> int:
        """Send a request, once a throttle is over; its correlation id."""
        if self._free_at and (held_s := self._free_at - self._clock.monotonic()) > 0:
            time.sleep(held_s)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        body = encode_request(request, version, self._correlation_id, self.client_id)
        self.socket.sendall(_SIZE.pack(len(body)) + body)
        return self._correlation_id

    def _fill(self, view: memoryview) -> None:
        at, size, receive = 0, len(view), self.socket.recv_into
        while at < size:
            got = receive(view[at:])
            if got == 0:
                raise ConnectionError(f"{self.host}:{self.port} closed the connection")
            at += got

    def receive(self, buffer: bytearray | None = None) -> memoryview:
        """The next reply, header and body, in `buffer`; in fresh memory when that is too small.

        `result.obj` is the bytearray used, to hand in again once nobody looks at it.
        """
        self._fill(memoryview(self._head))
        size = _SIZE.unpack(self._head)[0]
        if not 4 <= size <= REPLY_BYTES_MAX:
            raise ConnectionError(f"reply of {size} bytes from {self.host}:{self.port}")
        if buffer is None or len(buffer) < size:
            buffer = bytearray(size)
        view = memoryview(buffer)[:size]
        self._fill(view)
        return view

    def call(
        self,
        request: Message,
        reply_type: type[R],
        *,
        cap: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send one request and wait for its reply, for `timeout_s` if that is less than usual."""
        version = self.version_for(type(request), cap)
        correlation_id = self.send(request, version)
        usual = self.socket.gettimeout()
        if timeout_s is not None:
            self.socket.settimeout(timeout_s)
        raw = self.receive()
        self.socket.settimeout(usual)
        reply = decode_response(reply_type, version, raw, correlation_id)
        self.hold(reply)
        return reply

    def close(self) -> None:
        """Close the socket."""
        self.is_open = False
        self.socket.close()
