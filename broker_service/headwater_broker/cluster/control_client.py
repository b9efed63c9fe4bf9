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
from typing import TypeVar

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
        """The call, when it is done."""
        if self._closed:
            raise ControlUnavailableError(f"{type(request).__name__}: this client is closed")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[None] = loop.create_future()
        send = self._channel(address).unary_unary(method_path(type(request)))
        start = partial(send.future, payload, timeout=timeout_ms / 1000)
        call = await self._start(start, loop)

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def wake(_call: grpc.Future) -> None:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        call.add_done_callback(wake)
        try:
            await answered
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call

    async def _start(
        self, start: Callable[[], grpc.Future], loop: asyncio.AbstractEventLoop
    ) -> grpc.Future:
        starting = self._starter.submit(start)
        try:
            return await asyncio.shield(asyncio.wrap_future(starting, loop=loop))
        except asyncio.CancelledError:
            starting.add_done_callback(_cancel_started)
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


def _cancel_started(starting: Future[grpc.Future]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


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
