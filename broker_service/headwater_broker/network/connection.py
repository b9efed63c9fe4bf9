"""One client connection of the data plane: requests in, responses out in the same order.

Requests are received into one buffer; Produce and Fetch are parsed in place there. The responses of
one turn of the loop are written together. A connection does bounded work per turn, parks a bounded
number of responses, and takes no request while its client does not read.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, ClassVar, cast

from headwater.sockets import tune
from headwater.wire.schema import Message
from headwater_broker.api.context import RequestContext, Services
from headwater_broker.api.registry import ApiRow
from headwater_broker.api.rejected_batches import RejectedBatches
from headwater_broker.api.replies import CloseConnectionError, ParkedReply, Part
from headwater_broker.api.request_meters import ApiMeter
from headwater_broker.api.request_timing import RequestTiming
from headwater_broker.network import hold_reasons as hold
from headwater_broker.network import request_dispatch, throttling
from headwater_broker.network.connection_ports import Acceptor, ServedRequests
from headwater_broker.network.request_dispatch import MALFORMED
from headwater_broker.network.request_timer import TIMED_FIRST, RequestTimer
from headwater_broker.network.send_queue import SendQueue, own_parts, release_parts
from headwater_broker.network.wrong_protocol import TlsClientError
from headwater_broker.security.authentication_gate import TokenExchange
from headwater_broker.security.session import Session

BUFFER_MIN_BYTES = 8 * 1024
"""Receive buffer of a quiet connection: 1,000 of them cost 8 MB."""
BUFFER_BUSY_BYTES = 4 * 1024 * 1024
"""Receive buffer of a busy connection; only larger frames make it larger."""
BUFFER_GROWTH = 4
TURN_UNITS = 128
"""Work of one connection in one turn: a request is one unit, plus one per `UNIT_BYTES`."""
UNIT_BYTES = 8 * 1024
HEADER_BYTES_MIN = 10
"""API key, version, correlation id, length of the client id."""
FRAME_HEAD_BYTES = 4 + HEADER_BYTES_MIN

_SIZE = struct.Struct(">i")
_unpack_head = struct.Struct(">ihhih").unpack_from
"""Size, API key, version, correlation id, length of the client id."""

logger = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """One accepted socket, without encryption; below TLS a subclass brings its own send queue."""

    send_queue_class: ClassVar[type[SendQueue]] = SendQueue

    def __init__(self, listener: Acceptor) -> None:
        self.listener = listener
        self.services: Services = listener.services
        self._controls = listener.controls
        self._purgatories = listener.services.purgatories
        self.accepted: asyncio.Transport
        self.client_id = ""
        self.is_exempt = False
        self.rejected: RejectedBatches | None = None
        self.at_end: dict[object, Callable[[], None]] = {}
        self.last_active_tick = listener.tick
        self._rows: dict[int, ApiRow]
        self._handle_frames: Callable[[], int]
        self._frame_bytes_min = self._request_bytes_max = 0
        self._buffer = bytearray(BUFFER_MIN_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._order: deque[ParkedReply] = deque()
        self._out: list[bytes] = []
        self._in_turn = False
        self._flush_due = False
        self._hold = 0
        self._mute: asyncio.TimerHandle | None = None
        self._spent_s = 0.0
        self.raw_meters: Mapping[int, ApiMeter] = listener.services.meters.of_clients
        self._now = listener.loop.time
        self._timer = RequestTimer(self._now, listener.turn)
        self._closed = False
        self._transport: asyncio.Transport
        self._send_queue: SendQueue
        self.serve(listener.served)
        self.session: Session = listener.open_session(self)

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket up; close it when there are too many connections."""
        self._transport = self.accepted = cast(asyncio.Transport, transport)
        self._send_queue = self.send_queue_class(
            self._transport,
            self.listener.loop,
            partial(self._release, hold.WRITE),
            lambda error: self._close(f"write failed: {error}"),
        )
        sock = transport.get_extra_info("socket")
        peer = transport.get_extra_info("peername")
        self.session.host = str(peer[0]) if isinstance(peer, tuple) else "local"
        if sock is not None:
            tune(sock)
        refusal = self.listener.admit(self)
        if refusal:
            self._close(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: abandon the parked replies."""
        self._closed = True
        if self._mute is not None:
            self._mute.cancel()
        if self.session.gate is not None:
            self.session.gate.discard()
        self._send_queue.lost()
        self._discard()
        for reply in self._order:
            reply.abandon()
        for end in list(self.at_end.values()):
            end()
        self._timer.lost(self._order)
        self._handle_frames = _none  # it holds this: a collection would have to find out
        self.listener.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The free part of the buffer; never empty, as a full buffer was grown or is on hold."""
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the requests that are complete."""
        size = len(self._buffer)
        was_filled_up = nbytes == size - self._filled
        self._filled += nbytes
        self.last_active_tick = self.listener.tick
        if not self._hold:
            self._process()
        if was_filled_up and size == len(self._buffer) < BUFFER_BUSY_BYTES:
            self._resize(size * BUFFER_GROWTH)
        if self._hold and self._filled == len(self._buffer):
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The transport's buffer is not empty."""
        self._send_queue.pause()

    def resume_writing(self) -> None:
        """The transport's buffer is empty."""
        self._send_queue.resume()

    def eof_received(self) -> bool:
        """The client closed its side: write this turn's responses, then close."""
        self._flush()
        return False

    # --- api.raw_connection.Peer, network.connection_ports.AcceptedConnection

    def park(self) -> ParkedReply:
        """Keep the next place in the order of responses."""
        reply = ParkedReply(self._reply_ready)
        self._order.append(reply)
        return reply

    def mute(self, delay_ms: int) -> None:
        """Read nothing from the client for so long (KIP-219); a longer mute stays."""
        self._timer.muted_ms = delay_ms
        loop = self.listener.loop
        until = loop.time() + delay_ms / 1000
        if self._closed or (self._hold & hold.QUOTA and self._mute and self._mute.when() >= until):
            return
        if self._mute is not None:
            self._mute.cancel()
        self._set_hold(hold.QUOTA)
        self._mute = loop.call_at(until, self._release, hold.QUOTA)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to its end, also when this connection is lost. An exception closes the
        connection: the replies behind the one that `work` owed would wait for ever."""
        self.listener.spawn(work, self._work_failed)

    def _work_failed(self, error: BaseException) -> None:
        logger.error("request of %s failed", self.session.host, exc_info=error)
        self._close(f"internal error: {error!r}")

    @property
    def in_flight(self) -> int:
        """Replies that are to be written: none of a closed connection."""
        return 0 if self._closed else len(self._order)

    def shrink_when_quiet(self) -> None:
        """Give a large, empty receive buffer back."""
        if self._filled == 0 and len(self._buffer) > BUFFER_MIN_BYTES and not self._closed:
            self._resize(BUFFER_MIN_BYTES)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of replies that the kernel has not taken yet."""
        return self._send_queue.unsent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes in the receive buffer: requests that wait, and the part of one that has come."""
        return self._filled

    def close_idle(self) -> None:
        """Close after connections.max.idle.ms; responses that the client has not read are lost."""
        self._close("idle", level=logging.DEBUG)
        self._transport.abort()

    def close(self, reason: str) -> None:
        """Close for `reason`; responses that are ready are still sent."""
        self._close(reason, level=logging.DEBUG)

    # --- network.connection_ports.GatedConnection

    def serve(self, requests: ServedRequests) -> None:
        """From the next frame on serve only these requests."""
        self._rows = requests.rows
        self._request_bytes_max = requests.request_bytes_max
        self._handle_frames = self._handle_requests
        self._frame_bytes_min = HEADER_BYTES_MIN
        if self._in_turn:
            self._go_on_next_turn()

    def serve_tokens(self, exchange: TokenExchange) -> None:
        """From the next frame on take each one as a SASL token (SaslHandshake v0)."""
        self._handle_frames = partial(self._handle_token, exchange)
        self._frame_bytes_min = 0

    def close_after_reply(self, reason: str) -> None:
        """Read nothing more; close once the request at hand is answered."""
        self._set_hold(hold.CLOSING)
        self.listener.loop.call_soon(self._close, reason)

    # --- requests

    def _process(self) -> None:
        """Handle the complete requests in the buffer, within this turn's budget."""
        if not (turn := self.listener.turn).has_time():
            self._go_on_next_turn()
            return
        self._in_turn = True
        at = 0
        try:
            at = self._handle_frames()
            if at < self._filled:
                self._check_rest(at)
            if turn.is_quiet and self._purgatories.has_due_operations:
                turn.wake_some(self._purgatories)
        except MALFORMED as error:
            self._malformed(error)
        except Exception as error:
            logger.exception("request of %s failed", self.session.host)
            self._close(f"internal error: {error!r}")
        self._in_turn = False
        if self._closed:
            return
        if self._order or turn.is_quiet:
            self._flush()
        elif self._out:
            turn.flush_at_end(self)
        if at:
            rest = self._filled - at
            if rest:
                self._view[:rest] = self._view[at : self._filled]
            self._filled = rest
        if len(self._order) >= self.listener.in_flight_max:
            self._set_hold(hold.IN_FLIGHT)

    def _handle_requests(self) -> int:
        view, filled, order, out = self._view, self._filled, self._order, self._out
        rows, size_max, meters = self._rows, self._request_bytes_max, self.raw_meters
        at, units = 0, TURN_UNITS
        is_measured = self.services.quotas.is_active or self.listener.turn.to_time > 0
        while filled - at >= FRAME_HEAD_BYTES:
            size, key, version, correlation_id, id_size = _unpack_head(view, at)
            if not HEADER_BYTES_MIN <= size <= size_max:
                raise request_dispatch.out_of_bounds(size, size_max)
            end = at + 4 + size
            if end > filled:
                self._reserve(4 + size, at)
                break
            if units <= 0:
                self._go_on_next_turn()
                break
            row = rows.get(key)
            if row is not None and row.raw is not None and row.low <= version <= row.high:
                body = at + 14 + id_size if id_size > 0 else at + 14
                if version >= row.flexible:
                    body = request_dispatch.skip_tags(view, body) if view[body] else body + 1
                if body > end:
                    raise CloseConnectionError("client id runs past the frame")
                meter = meters[key]
                meter.requests = number = meter.requests + 1
                answer = (
                    self._timer.handle(self, row, view, at, body, end, version, correlation_id)
                    if is_measured or number <= TIMED_FIRST
                    else row.raw(self, view, body, end, version, correlation_id)
                )
                if isinstance(answer, bytes):
                    if order:
                        self._append_ready([answer])
                    else:
                        out.append(answer)
                elif isinstance(answer, list):
                    self._append_ready(answer)
            else:
                self._handle_general(row, key, version, correlation_id, at, end)
                if self._hold:
                    at = end
                    break
            at = end
            # A muted connection is done for this turn.
            units = 0 if is_measured and self._hold else units - 1 - size // UNIT_BYTES
        return at

    def _check_rest(self, at: int) -> None:
        """Check the size of a request of which less than the header has come."""
        if _SIZE.size <= self._filled - at < FRAME_HEAD_BYTES and not self._hold:
            size, size_max = _SIZE.unpack_from(self._view, at)[0], self._request_bytes_max
            if not self._frame_bytes_min <= size <= size_max:
                raise request_dispatch.out_of_bounds(size, size_max)

    def _append_ready(self, parts: list[Part]) -> None:
        if self._order:  # it may wait for the replies before it, longer than its segment is open
            own_parts(parts)
        reply = ParkedReply(self._reply_ready)
        reply.parts = parts
        self._order.append(reply)

    def _handle_general(
        self, row: ApiRow | None, key: int, version: int, correlation_id: int, at: int, end: int
    ) -> None:
        if request_dispatch.is_api_versions_of_unknown_version(row, key, version):
            self._append_ready([request_dispatch.unsupported_api_versions(correlation_id)])
            return
        row = request_dispatch.check_version(row, key, version, self.session)
        meter, timer = self.services.meters.api(key), self._timer
        meter.requests += 1
        timing = timer.begin(meter)
        if row.at_once is not None and not self.services.quotas.is_active:
            body = request_dispatch.skip_client_id(self._view, at + 12, version >= row.flexible)
            data = row.at_once(self, self._view[:end], body, end, version, correlation_id)
            if data is not None:
                if timing is not None:
                    timing.handled()
                    timer.written.append(timing)
                self._answer(data)
                return
        frame = memoryview(bytes(self._view[at + 4 : end]))  # requests keep slices of it
        client_id = request_dispatch.client_id_of(frame, 8)
        body = request_dispatch.skip_client_id(frame, 8, version >= row.flexible)
        context = RequestContext(
            self.services, self.session, client_id, version, correlation_id, self._controls
        )
        began = self._now()
        response = request_dispatch.run_handler(row, context, frame, body)
        if self.services.quotas.is_active:
            self._spent_s = self._now() - began
            self.client_id = client_id or ""
            self.is_exempt |= throttling.asks_as_replica(self, key, version, frame, body)
        if isinstance(response, Message):
            if timing is not None:
                timing.handled()
                timer.written.append(timing)
            self._answer(self._framed(row, version, correlation_id, response, timing))
            return
        timing = timer.awaited(meter, timing, began)
        timing.handled()
        self._set_hold(hold.HANDLER)
        reply = self.park()
        reply.timing = timing
        self.spawn(self._finish(row, response, version, correlation_id, reply, timing))

    def _answer(self, data: bytes) -> None:
        if self._order or self._hold:
            self._append_ready([data])
        else:
            self._out.append(data)

    async def _finish(
        self, row: ApiRow, pending: Awaitable[Message], version: int, correlation_id: int,
        reply: ParkedReply, timing: RequestTiming,
    ) -> None:  # fmt: skip
        try:
            response = await request_dispatch.await_response(row, version, pending)
            data = self._framed(row, version, correlation_id, response, timing)
        except MALFORMED as error:
            self._malformed(error)
            return
        reply.resolve([data])
        self._release(hold.HANDLER)

    def _handle_token(self, exchange: TokenExchange) -> int:
        """Handle one frame without a request header; the next one waits for its answer."""
        if self._filled < _SIZE.size:
            return 0
        size: int = _SIZE.unpack_from(self._view)[0]
        if not 0 <= size <= self._request_bytes_max:
            raise request_dispatch.out_of_bounds(size, self._request_bytes_max)
        if (end := _SIZE.size + size) > self._filled:
            self._reserve(end, 0)
            return 0
        request_dispatch.check_gate(self.session)
        self._set_hold(hold.HANDLER)
        token = bytes(self._view[_SIZE.size : end])
        self.spawn(self._answer_token(exchange, token, self.park()))
        return end

    async def _answer_token(
        self, exchange: TokenExchange, token: bytes, reply: ParkedReply
    ) -> None:
        try:
            answer = await exchange(token)
        except CloseConnectionError as error:
            self._close(str(error))
            return
        reply.resolve([_SIZE.pack(len(answer)) + answer])
        self._release(hold.HANDLER)

    def _framed(
        self, row: ApiRow, version: int, correlation_id: int, response: Message,
        timing: RequestTiming | None,
    ) -> bytes:  # fmt: skip
        """The framed reply of a general request, once the client is charged for it."""
        if code := getattr(response, "error_code", 0):
            self.services.meters.api(row.key).failed(code)
        if self.services.quotas.is_active:
            with self._timer.throttled(timing):
                response = throttling.charge(self, response, self._spent_s)
        return request_dispatch.frame_reply(row, version, correlation_id, response)

    # --- replies

    def _reply_ready(self) -> None:
        if self._closed:
            self._discard()
        elif not self._in_turn and not self._flush_due:
            self._flush_due = True
            self.listener.turn.reply_resolved(self)
            self.listener.loop.call_soon(self._flush_later)

    def flush_ready(self) -> None:
        """Write the replies that are ready and in order. Requests that were held go on in the next
        turn."""
        if not self._closed:
            self._flush()

    def _flush_later(self) -> None:
        self._flush_due = False
        if self._closed:
            return
        self._flush()
        if self._hold & hold.IN_FLIGHT and len(self._order) < self.listener.in_flight_max:
            self._release(hold.IN_FLIGHT)

    def _flush(self) -> None:
        """Write the replies of this turn, then the parked ones that are ready and in order."""
        out, order = self._out, self._order
        if not order:
            if out:
                data = b"".join(out) if len(out) > 1 else out[0]
                out.clear()
                self._send_queue.push_bytes(data)
                self.last_active_tick = self.listener.tick
        else:
            parts: list[Part] = [*out]
            out.clear()
            while order and order[0].parts is not None:
                reply = order.popleft()
                parts.extend(reply.parts or ())
                if reply.timing is not None:
                    self._timer.written.append(reply.timing)
            if len(parts) == 1 and parts[0].__class__ is bytes:
                self._send_queue.push_bytes(parts[0])
                self.last_active_tick = self.listener.tick
            elif parts:
                self._send_queue.push(parts)
                self.last_active_tick = self.listener.tick
        if self._timer.written:
            self._send_queue.call_when_idle(self._timer.sent)
        if self._send_queue.is_full:
            self._set_hold(hold.WRITE)

    # --- holds, buffer, closing

    def _go_on_next_turn(self) -> None:
        """Bytes are still received while there is room: to pause and resume reading costs as much
        as a small request."""
        self._hold |= hold.TURN
        self._timer.put_off()
        self.listener.turn.put_off(self)

    def go_on(self) -> None:
        """Handle the requests that were put off to this turn."""
        self._release(hold.TURN)

    def _set_hold(self, reason: int) -> None:
        if not self._closed:
            self._transport.pause_reading()
        self._hold |= reason

    def _release(self, reason: int) -> None:
        if self._closed or not self._hold & reason:
            return
        self._hold &= ~reason
        if self._hold:
            return
        if self._filled:
            self._process()
        if not self._hold & hold.TURN:
            self._timer.caught_up()
        if not self._hold and not self._closed:
            self._transport.resume_reading()

    def _reserve(self, need_bytes: int, at: int) -> None:
        """Make room for the frame at `at`; the buffer grows with the bytes received, not with the
        size that the frame claims."""
        size = len(self._buffer)
        if need_bytes > size and self._filled - at == size:
            self._resize(min(need_bytes, size * BUFFER_GROWTH))

    def _resize(self, size_bytes: int) -> None:
        buffer = bytearray(max(size_bytes, self._filled, BUFFER_MIN_BYTES))
        view = memoryview(buffer)
        view[: self._filled] = self._view[: self._filled]
        self._buffer, self._view = buffer, view

    def _discard(self) -> None:
        """The connection is gone: release the files of its unsent replies."""
        for reply in self._order:
            if reply.parts:
                release_parts(reply.parts)
                reply.parts = []

    def _malformed(self, error: Exception) -> None:
        self.services.meters.connections_closed_malformed += 1
        if isinstance(error, TlsClientError) and not self.listener.protocol.uses_tls:
            self.listener.hints.speaks_tls(self.session.host)
            self._close(str(error), logging.DEBUG)
            return
        self._close(f"malformed request: {error}")

    def _close(self, reason: str, level: int = logging.WARNING) -> None:
        if self._closed:
            return
        self._flush()  # replies to earlier requests
        self._closed = True
        host, listener = self.session.host, self.session.listener
        logger.log(level, "closing connection of %s on %s: %s", host, listener, reason)
        self._transport.close()


def _none() -> int:
    """The frames of a lost connection."""
    return 0
