"""Control calls over gRPC: `headwater.ports.control.ControlCalls` for the broker's loop.

The one adapter of grpcio on the calling side of the broker. grpcio's own threads do the I/O; an
answer is posted back to the loop. (grpc.aio would bind the poller to this loop; the callback form
costs the loop one wake-up per call and nothing while idle.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import grpc

from headwater.ports.control import ControlUnavailableError
from headwater.wire.control_payload import (
    CHANNEL_OPTIONS,
    ControlFormatError,
    PeerFormats,
    error_from_detail,
    method_path,
    unpack,
)
from headwater.wire.schema import Message

Reply = TypeVar("Reply", bound=Message)


class GrpcControlCalls:
    """One channel per address, made on first use and kept."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.Channel] = {}
        self._formats = PeerFormats()
        self._closed = False
        # grpcio starts a thread for a channel that was idle, and waits until that runs: on a box
        # with more work than cores this is long, so it is not the loop that waits.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="control-call")
        self._starter.submit(int)

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send to `host:port`, await the reply. Raises ControlUnavailableError, KafkaError."""
        try:
            payload = self._formats.pack(address, request)
            call = await self._send(address, request, payload, timeout_ms)
            if self._formats.is_older(address, payload, request.versions[0], _refusal(call)):
                payload = self._formats.pack(address, request)
                call = await self._send(address, request, payload, timeout_ms)
        except ControlFormatError as error:
            text = f"{type(request).__name__} to {address}: {error}"
            raise ControlUnavailableError(text) from error
        return _outcome(call, address, request, reply)

    async def _send(
        self, address: str, request: Message, payload: bytes, timeout_ms: int
    ) -> grpc.Future:
        """The call, when it is done: the loop wakes once."""
        if self._closed:
            raise ControlUnavailableError(f"{type(request).__name__}: this client is closed")
        send = self._channel(address).unary_unary(method_path(type(request)))
        call = _Call(asyncio.get_running_loop())
        start = partial(send.future, payload, timeout=timeout_ms / 1000)
        self._starter.submit(call.start, start).add_done_callback(call.started)
        try:
            return await call.answered
        except asyncio.CancelledError:
            call.cancel()
            raise
        except ValueError as error:  # grpcio: the channel is closed
            raise ControlUnavailableError(str(error)) from error

    async def close(self) -> None:
        """Close every channel; calls in flight fail with ControlUnavailableError."""
        self._closed = True
        self._starter.shutdown(wait=False)
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def forget(self, address: str) -> None:
        """Drop the channel of an address that left the cluster."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()

    def _channel(self, address: str) -> grpc.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
            self._channels[address] = channel
        return channel


class _Call:
    """One call between the loop, the thread that starts it and grpcio's own that ends it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.answered: asyncio.Future[grpc.Future] = loop.create_future()
        self._call: grpc.Future | None = None
        self._is_given_up = False

    def start(self, start: Callable[[], grpc.Future]) -> None:
        """On the starter's thread."""
        call = self._call = start()
        # Each side says first what it did, then looks what the other has done: one of them sees.
        if self._is_given_up:
            call.cancel()
        call.add_done_callback(partial(self._post, self._settle))

    def started(self, starting: Future[None]) -> None:
        """It could not be started: this is the answer."""
        error = starting.exception()
        if error is not None:
            self._post(self._fail, error)

    def cancel(self) -> None:
        """On the loop: nobody waits any more."""
        self._is_given_up = True
        if self._call is not None:
            self._call.cancel()

    def _post(self, settle: Callable[[Any], None], outcome: object) -> None:
        try:
            self._loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _settle(self, call: grpc.Future) -> None:
        if not self.answered.done():
            self.answered.set_result(call)

    def _fail(self, error: BaseException) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


def _refusal(call: grpc.Future) -> str:
    """What the serving side gave as the reason, if it refused."""
    if call.cancelled() or call.code() is not grpc.StatusCode.INVALID_ARGUMENT:
        return ""
    return call.details() or ""


def _outcome(call: grpc.Future, address: str, request: Message, reply: type[Reply]) -> Reply:
    name = type(request).__name__
    try:
        return unpack(reply, call.result())
    except grpc.RpcError as error:
        known = error_from_detail(error.details() or "")
        if known is not None:
            raise known from error
        text = f"{name} to {address}: {error.code().name}: {error.details()}"
        raise ControlUnavailableError(text) from error
    except grpc.FutureCancelledError as error:
        raise ControlUnavailableError(f"{name} to {address}: cancelled") from error
    except ControlFormatError as error:
        raise ControlUnavailableError(f"{name} to {address}: {error}") from error
