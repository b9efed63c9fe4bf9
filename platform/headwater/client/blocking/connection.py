"""A blocking connection to a broker over a plain socket; responses go to the caller's buffer.

For Spark tasks and tools without an event loop. One thread at a time may use a connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import time
from collections import deque
from typing import TypeVar

from headwater import __version__, in_process
from headwater.client.core.sasl import (
    SaslResponse,
    next_call,
    reauthenticate_after_s,
    sasl_calls,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.sockets import tune
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message

REPLY_BYTES_MAX = 1 << 30
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
_SIZE = struct.Struct(">i")
HANDSHAKE_TIMEOUT_S = 5.0
"""The kernel accepts connections for a broker that hangs and never answers."""
_HEAD_BYTES = 4
_TIMEVAL = struct.Struct("@ll")
SHORT_RESPONSE_BYTES = 4096
"""Received at once in an exchange."""
LIMIT_SLACK_S = 0.02
"""An exchange may last longer than its limit by so much for each of its calls."""

R = TypeVar("R", bound=Message)


class BlockingConnection:
    """Requests and their responses, in order. Raises OSError (TimeoutError, ConnectionError)."""

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
        self._throttled_until = 0.0
        self._credentials = credentials
        self._reauthenticate_at: float | None = None
        self._unanswered = 0
        self._received: deque[memoryview] = deque()
        """Responses that came before those of a re-authentication."""
        self._head = bytearray(_HEAD_BYTES)
        self._exchange_timeout_s = 0.0
        self.socket = _connect(host, port)
        tune(self.socket)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        try:
            if (tls := credentials.tls()) is not None:
                self.socket = tls.wrap_socket(self.socket, server_hostname=host)
            self._negotiate()
            self._authenticate()
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

    def _authenticate(self) -> None:
        exchange = self._credentials.sasl(self.host)
        if exchange is None:
            return
        calls = sasl_calls(exchange)
        response: SaslResponse | None = None
        while True:
            call = next_call(calls, response)
            if isinstance(call, int):
                lifetime_ms = call
                break
            request, reply_type, version = call
            correlation_id = self._send(request, version)
            response = decode_response(reply_type, version, self._receive(None), correlation_id)
        self._reauthenticate_at = None
        if lifetime_ms > 0:
            after_s = reauthenticate_after_s(lifetime_ms, SystemEntropy())
            self._reauthenticate_at = self._clock.monotonic() + after_s

    def _reauthenticate(self) -> None:
        """Authenticate again before the session ends (KIP-368), once all requests are answered."""
        for _ in range(self._unanswered - len(self._received)):
            self._received.append(self._receive(None))
        try:
            self._authenticate()
        except BaseException:
            self.close()
            raise

    def version_for(self, cls: type[Message], cap: int | None = None) -> int:
        """The highest version that both sides support, at most `cap`. Raises KafkaError."""
        low, high = cls.versions
        high = high if cap is None else min(high, cap)
        served = self.versions.get(cls.api_key)
        if served is None or served[0] > min(high, served[1]) or served[1] < low:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{cls.__name__}: this client knows versions {low}-{high}, {self.host}:{self.port} "
                f"serves {'none' if served is None else f'{served[0]}-{served[1]}'}",
            )
        return min(high, served[1])

    def throttle(self, response: Message) -> None:
        """Heed the throttle time of a response: the broker reads nothing until then (KIP-219)."""
        seconds = float(getattr(response, "throttle_time_ms", 0)) / 1000
        if seconds > 0:
            until = self._clock.monotonic() + seconds
            self._throttled_until = max(self._throttled_until, until)

    def send(self, request: Message, version: int) -> int:
        """Send a request, once the throttle time has passed; its correlation id."""
        self._prepare()
        self._unanswered += 1
        return self._send(request, version)

    def send_without_reply(self, request: Message, version: int) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        self._prepare()
        self._send(request, version)

    def _prepare(self) -> None:
        """Wait until the throttle time has passed; authenticate again when it is time."""
        if self._throttled_until:
            left_s = self._throttled_until - self._clock.monotonic()
            time.sleep(max(0.0, left_s))
        if self.is_authentication_due:
            self._reauthenticate()

    def next_correlation_id(self) -> int:
        """The next correlation id; it wraps at the end of int32."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _send(self, request: Message, version: int) -> int:
        correlation_id = self.next_correlation_id()
        body = encode_request(request, version, correlation_id, self.client_id)
        self.socket.sendall(_SIZE.pack(len(body)) + body)
        return correlation_id

    def _fill(self, view: memoryview) -> None:
        at, size, receive = 0, len(view), self.socket.recv_into
        while at < size:
            got = receive(view[at:])
            if got == 0:
                raise ConnectionError(f"{self.host}:{self.port} closed the connection")
            at += got

    def receive(self, buffer: bytearray | None = None) -> memoryview:
        """The next response, header and body, in `buffer`, or in a new one if that is too small.

        `result.obj` is the bytearray used: it can be handed in again once the response is not
        needed any more.
        """
        self._unanswered -= 1
        return self._received.popleft() if self._received else self._receive(buffer)

    def _receive(self, buffer: bytearray | None) -> memoryview:
        self._fill(memoryview(self._head))
        size = _SIZE.unpack(self._head)[0]
        if not 4 <= size <= REPLY_BYTES_MAX:
            raise ConnectionError(f"a response of {size} bytes from {self.host}:{self.port}")
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
        """Send one request and wait for its response, for `timeout_s` if it is given."""
        version = self.version_for(type(request), cap)
        correlation_id = self.send(request, version)
        usual = self.socket.gettimeout()
        if timeout_s is not None:
            self.socket.settimeout(timeout_s)
        raw = self.receive()
        self.socket.settimeout(usual)
        reply = decode_response(reply_type, version, raw, correlation_id)
        self.throttle(reply)
        return reply

    @property
    def throttled_s(self) -> float:
        """Seconds for which the broker reads nothing from this connection (KIP-219)."""
        if not self._throttled_until:
            return 0.0
        return max(0.0, self._throttled_until - self._clock.monotonic())

    @property
    def is_authentication_due(self) -> bool:
        """True once the next request would authenticate again first (KIP-368)."""
        due = self._reauthenticate_at
        return due is not None and self._clock.monotonic() >= due

    def exchange(self, request: bytes | bytearray, timeout_s: float) -> bytes:
        """Send an encoded request and wait for its response, the sizes before both.

        The shortest way: a system call to send and one to receive. No other request may wait for a
        response, and the caller has looked at `throttled_s` and `is_authentication_due`, for which
        it does not wait. Raises OSError; the connection is of no use then.
        """
        deadline = self._clock.monotonic() + timeout_s
        if timeout_s != self._exchange_timeout_s:
            self._limit_exchanges(timeout_s)
        sock = self.socket
        sent = sock.send(request)
        self._limit_to(deadline)
        while sent < len(request):
            sent += sock.send(memoryview(request)[sent:])
            self._limit_to(deadline)
        response = sock.recv(SHORT_RESPONSE_BYTES)
        while not _is_whole(response):
            self._limit_to(deadline)
            more = sock.recv(SHORT_RESPONSE_BYTES)
            if not more:
                raise ConnectionError(f"{self.host}:{self.port} closed the connection")
            response += more
        return response

    def _limit_to(self, deadline: float) -> None:
        """Leave the next call no more time than until the deadline. Raises TimeoutError after it.
        What a call that did not wait took is not worth a system call."""
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{self.host}:{self.port} did not answer in time")
        if self._exchange_timeout_s - left_s > LIMIT_SLACK_S:
            self._limit_exchanges(left_s)

    def _limit_exchanges(self, timeout_s: float) -> None:
        """The kernel's timers spare a plain socket the `poll` before each call."""
        if os.name != "posix" or isinstance(self.socket, ssl.SSLSocket):
            self.socket.settimeout(timeout_s)
        else:
            self.socket.settimeout(None)
            microseconds = max(1, int(timeout_s * 1_000_000))  # 0 is no limit
            limit = _TIMEVAL.pack(*divmod(microseconds, 1_000_000))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._exchange_timeout_s = timeout_s

    def close(self) -> None:
        """Close the socket."""
        self.is_open = False
        self.socket.close()

    def interrupt(self) -> None:
        """End the wait of a thread that is in a call. Any thread may ask for it.

        Only the kernel's end is shut: SSLSocket.shutdown takes TLS off first, and what a thread is
        sending would go out in plain text.
        """
        self.is_open = False
        with contextlib.suppress(OSError):  # the peer may have closed it
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


def _is_whole(response: bytes) -> bool:
    got = len(response)
    return got >= _HEAD_BYTES and got >= _HEAD_BYTES + int(_SIZE.unpack_from(response)[0])


def _connect(host: str, port: int) -> socket.socket:
    local = in_process.dial(host, port)
    if local is None:
        return socket.create_connection((host, port), timeout=HANDSHAKE_TIMEOUT_S)
    local.settimeout(HANDSHAKE_TIMEOUT_S)
    return local
