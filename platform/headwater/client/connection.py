"""An asyncio connection to a broker: requests in frames, responses in the order of the requests.

`Connection.call` picks the highest version that both sides support (ApiVersions: KIP-35, KIP-511)
and decodes the response. Requests are pipelined: the broker answers in order, so the next response
belongs to the oldest request that waits. A response out of order closes the connection.
`open_connection` implements `headwater.ports.network.Connect`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import TypeVar, cast

from headwater import __version__, in_process
from headwater.client.core.sasl import (
    SaslResponse,
    next_call,
    reauthenticate_after_s,
    sasl_calls,
)
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials, SaslExchange
from headwater.sockets import SYSTEM_BUFFER, set_buffers, tune
from headwater.system import SystemEntropy
from headwater.wire.apis.k00_produce import ProduceRequest
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message, SchemaError

REPLY_BYTES_MAX = 256 * 1024 * 1024
"""A longer response means that this is no Kafka port, but one of TLS or HTTP, for example."""
SCRATCH_BYTES = 64 * 1024
LARGE_REQUEST_BYTES = 256 * 1024
"""The parts of a larger request are written one by one."""
CONNECT_TIMEOUT_S = 10.0
CLIENT_SOFTWARE_NAME = "headwater"

_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
_MINIMUM_LEN = 4

R = TypeVar("R", bound=Message)
Part = bytes | bytearray | memoryview
_Held = tuple[asyncio.Future[memoryview] | None, tuple[Part, ...]]
"""A request: the future of its response, None where there is none; header and body in parts."""


class _FrameProtocol(asyncio.BufferedProtocol):
    """Cuts the byte stream into responses; a large one is received straight into its own buffer."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[memoryview]] = deque()
        self.transport: asyncio.Transport | None = None
        self.error: ConnectionError | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self._scratch = bytearray(SCRATCH_BYTES)
        self._scratch_view = memoryview(self._scratch)
        self._filled = 0
        self._reply: memoryview | None = None
        self._reply_at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=4 * 1024 * 1024)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            tune(sock)

    def connection_lost(self, exc: Exception | None) -> None:
        reason = f"connection lost: {exc}" if exc else "connection closed by the broker"
        self.fail(ConnectionError(reason))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def fail(self, error: ConnectionError) -> None:
        """Fail every request that waits; later ones fail at once."""
        if self.error is None:
            self.error = error
        self.writable.set()
        waiting, self.waiting = self.waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(self.error)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._reply is not None:
            return self._reply[self._reply_at :]
        return self._scratch_view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._reply is not None:
            self._reply_at += nbytes
            if self._reply_at == len(self._reply):
                reply, self._reply = self._reply, None
                self._deliver(reply)
            return
        self._filled += nbytes
        self._cut()

    def _cut(self) -> None:
        at, filled = 0, self._filled
        while filled - at >= _MINIMUM_LEN:
            size = _SIZE.unpack_from(self._scratch, at)[0]
            if not 4 <= size <= REPLY_BYTES_MAX:
                self._abort(f"a response of {size} bytes: is this a Kafka port?")
                return
            end = at + 4 + size
            if end > filled:
                if end - at > SCRATCH_BYTES:
                    self._start_large(at + 4, filled, size)
                    return
                break
            self._deliver(memoryview(bytes(self._scratch_view[at + 4 : end])))
            at = end
        rest = filled - at
        if at and rest:
            self._scratch[:rest] = self._scratch[at:filled]
        self._filled = rest

    def _start_large(self, at: int, filled: int, size: int) -> None:
        have = filled - at
        self._reply = memoryview(bytearray(size))
        self._reply[:have] = self._scratch_view[at:filled]
        self._reply_at = have
        self._filled = 0

    def _deliver(self, reply: memoryview) -> None:
        if not self.waiting:
            self._abort("a response that no request waits for")
            return
        future = self.waiting.popleft()
        if not future.done():
            future.set_result(reply)

    def _abort(self, reason: str) -> None:
        self.fail(ConnectionError(reason))
        if self.transport is not None:
            self.transport.abort()


class Connection:
    """A connection to one broker (`headwater.ports.network.PeerConnection`).

    It belongs to the loop that opened it and never reconnects: open another when it is lost.
    """

    def __init__(
        self, protocol: _FrameProtocol, host: str, port: int, client_id: str | None
    ) -> None:
        self.host = host
        self.port = port
        self.client_id = client_id
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> (lowest, highest) version that the broker serves; `negotiate` sets it."""
        self.features: dict[str, int] = {}
        """Finalized feature -> its version (KIP-584); `negotiate` sets it."""
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._correlation_id = 0
        self._throttled_until = 0.0
        self._held: list[_Held] | None = None
        """Requests that wait for the end of a re-authentication."""
        self._reauthentication: asyncio.TimerHandle | asyncio.Task[None] | None = None

    @property
    def throttled_s(self) -> float:
        """Seconds for which the broker reads nothing from this connection (KIP-219): a request sent
        now could time out unread. Any thread may ask: `flush` does, when its time is up."""
        return max(0.0, self._throttled_until - self._loop.time())

    def throttle(self, response: Message) -> None:
        """Heed the throttle time of a response."""
        seconds = float(getattr(response, "throttle_time_ms", 0)) / 1000
        if seconds > 0:
            until = self._loop.time() + seconds
            self._throttled_until = max(self._throttled_until, until)

    @property
    def is_open(self) -> bool:
        """False once the connection is lost or closed."""
        return self._protocol.error is None

    @property
    def in_flight(self) -> int:
        """Requests without a response yet."""
        return len(self._protocol.waiting)

    def post(self, *parts: Part) -> asyncio.Future[memoryview]:
        """Send one request (header and body, in parts); a future of its response."""
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self._held is not None:
            self._held.append((future, parts))
            return future
        return self._post(future, parts)

    def _post(
        self, future: asyncio.Future[memoryview], parts: tuple[Part, ...]
    ) -> asyncio.Future[memoryview]:
        protocol = self._protocol
        if protocol.error is not None or protocol.transport is None:
            future.set_exception(protocol.error or ConnectionError("connection is not open"))
            return future
        protocol.waiting.append(future)
        self._write(parts)
        return future

    def post_without_reply(self, *parts: Part) -> None:
        """Send a request that has no response (Produce with acks=0)."""
        if self._protocol.error is not None:
            raise self._protocol.error
        if self._held is not None:
            self._held.append((None, parts))
            return
        self._write(parts)

    def _write(self, parts: tuple[Part, ...]) -> None:
        transport = cast(asyncio.Transport, self._protocol.transport)
        size = sum(map(len, parts))
        if size < LARGE_REQUEST_BYTES:
            transport.writelines([_SIZE.pack(size), *parts])
            return
        transport.write(_SIZE.pack(size))  # asyncio would join them, a copy of each
        for part in parts:
            transport.write(part)

    async def request(self, body: bytes) -> memoryview:
        """Send one request (header and body) and await its response. Raises ConnectionError."""
        await self._protocol.writable.wait()
        return await self.post(body)

    def next_correlation_id(self) -> int:
        """The next correlation id; it wraps at the end of int32."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    async def negotiate(self) -> dict[int, tuple[int, int]]:
        """Ask for the versions that the broker serves; with ApiVersions 0 if it is that old."""
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
        )
        reply = await self._ask_versions(request, 4)
        if reply.error_code == ErrorCode.UNSUPPORTED_VERSION:
            reply = await self._ask_versions(ApiVersionsRequest(), 0)
        if reply.error_code:
            raise KafkaError(ErrorCode(reply.error_code), f"ApiVersions to {self.host}:{self.port}")
        self.versions = {a.api_key: (a.min_version, a.max_version) for a in reply.api_keys}
        self.features = {f.name: f.max_version_level for f in reply.finalized_features}
        return self.versions

    async def _ask_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        correlation_id = self.next_correlation_id()
        body = encode_request(request, version, correlation_id, self.client_id)
        raw = await self.request(body)
        # An unsupported version is answered with a version-0 body (KIP-511).
        code = int.from_bytes(raw[4:6], "big", signed=True) if len(raw) >= 6 else 0
        if version and code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        return decode_response(ApiVersionsResponse, version, raw, correlation_id)

    def version_for(self, cls: type[Message], cap: int | None = None) -> int:
        """The highest version of a request that both sides support, at most `cap`.

        Raises KafkaError(UNSUPPORTED_VERSION).
        """
        low, high = cls.versions
        if cap is not None:
            high = min(high, cap)
        served = self.versions.get(cls.api_key)
        if served is None or served[0] > high or served[1] < low:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{cls.__name__}: this client knows versions {low}-{high}, {self.host}:{self.port} "
                f"serves {'none' if served is None else f'{served[0]}-{served[1]}'}",
            )
        return min(high, served[1])

    async def call(
        self,
        request: Message,
        reply_type: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send `request` in the highest common version, await its response and decode it.

        Raises ConnectionError, KafkaError(UNSUPPORTED_VERSION), UsageError (a string that is not
        valid Unicode), SchemaError, or TimeoutError: the connection is then closed, as the broker
        answers later requests only after this one.
        """
        cls = type(request)
        chosen = self.version_for(cls) if version is None else version
        correlation_id = self.next_correlation_id()
        body = encode_request(request, chosen, correlation_id, self.client_id)
        if cls is ProduceRequest and cast(ProduceRequest, request).acks == 0:
            raise ValueError("acks=0 has no response: use post_without_reply")
        await self._protocol.writable.wait()
        future = self.post(body)
        try:
            async with asyncio.timeout(timeout_s):
                raw = await future
        except TimeoutError:
            self.fail(f"no response to {cls.__name__} within {timeout_s} s")
            raise
        try:
            return decode_response(reply_type, chosen, raw, correlation_id)
        except (SchemaError, ValueError) as e:
            self.fail(f"bad response to {cls.__name__}: {e}")
            raise

    async def authenticate(self, credentials: Credentials) -> None:
        """Authenticate, where the credentials have SASL, and again before the session ends.

        Other requests are held meanwhile: the broker refuses them (KIP-368). Raises KafkaError when
        the broker refuses the credentials.
        """
        if credentials is NO_CREDENTIALS:
            return
        # In a thread, as each step is: they ask a KDC or an OAuth endpoint, or derive a key.
        exchange = await asyncio.to_thread(credentials.sasl, self.host)
        if exchange is None:
            return
        self._held = []
        try:
            lifetime_ms = await self._exchange(exchange)
        finally:
            held, self._held = self._held, None
            for future, parts in held:
                if future is not None:
                    self._post(future, parts)
                elif self._protocol.error is None:
                    self._write(parts)
        if lifetime_ms > 0 and self.is_open:
            delay_s = reauthenticate_after_s(lifetime_ms, SystemEntropy())
            loop = asyncio.get_running_loop()
            self._reauthentication = loop.call_later(delay_s, self._reauthenticate, credentials)

    def _reauthenticate(self, credentials: Credentials) -> None:
        async def again() -> None:
            try:
                await self.authenticate(credentials)
            except (HeadwaterError, OSError, TimeoutError, ValueError) as error:
                self.fail(f"re-authentication failed: {error}")

        if self.is_open:
            self._reauthentication = asyncio.get_running_loop().create_task(again())

    async def _exchange(self, exchange: SaslExchange) -> int:
        """Make the calls of a SASL exchange; the session's lifetime in ms."""
        calls = sasl_calls(exchange)
        response: SaslResponse | None = None
        while True:
            if response is not None and response.error_code:
                # Raises at once: the broker closes the connection behind a refusal.
                return cast(int, next_call(calls, response))
            call = await asyncio.to_thread(next_call, calls, response)
            if isinstance(call, int):
                return call
            request, reply_type, version = call
            correlation_id = self.next_correlation_id()
            body = encode_request(request, version, correlation_id, self.client_id)
            future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
            raw = await self._post(future, (body,))
            response = decode_response(reply_type, version, raw, correlation_id)

    def fail(self, reason: str) -> None:
        """Close at once; requests in flight fail with ConnectionError(reason)."""
        self._protocol.fail(ConnectionError(f"{self.host}:{self.port}: {reason}"))
        if isinstance(self._reauthentication, asyncio.TimerHandle):
            self._reauthentication.cancel()
        if self._protocol.transport is not None:
            self._protocol.transport.abort()

    def close(self) -> None:
        """Close the connection; requests in flight fail with ConnectionError."""
        self.fail("connection closed")


async def open_connection(
    host: str,
    port: int,
    *,
    client_id: str | None = None,
    timeout_s: float = CONNECT_TIMEOUT_S,
    negotiate: bool = True,
    credentials: Credentials = NO_CREDENTIALS,
    buffers: tuple[int, int] = (SYSTEM_BUFFER, SYSTEM_BUFFER),
) -> Connection:
    """Connect, authenticate, and ask for the broker's versions if `negotiate`.

    `buffers`: bytes of the socket's receive and send buffer. Raises OSError, TimeoutError;
    KafkaError when the broker refuses the credentials.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        if (local := in_process.dial(host, port)) is not None:
            transport, protocol = await loop.create_connection(_FrameProtocol, sock=local)
        else:
            transport, protocol = await loop.create_connection(
                _FrameProtocol, host, port, ssl=credentials.tls()
            )
        set_buffers(transport.get_extra_info("socket"), *buffers)
        connection = Connection(protocol, host, port, client_id)
        try:
            if negotiate:
                await connection.negotiate()
            await connection.authenticate(credentials)
        except BaseException:
            connection.close()
            raise
    return connection
