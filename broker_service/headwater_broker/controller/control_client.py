"""The client side of the control plane: `headwater.ports.control.ControlCalls` over gRPC.

The one adapter of grpcio on the calling side of the broker. It uses grpc.aio: one thread polls for
all channels, without the GIL, and wakes the loop through a socket. grpcio's synchronous calls pass
through Python threads, each of which waits until a busy loop releases the GIL; and a broker that
hangs would hold a thread that calls to other brokers need. The poller exists once per process and
wakes every open loop that created a client, so only the broker's loop should create one.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import grpc
import grpc.aio

from headwater.errors import HeadwaterError
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


def mutual_tls(key: bytes, chain: bytes, trusted: bytes) -> grpc.ChannelCredentials:
    """Channels that show this certificate, to hosts whose own one of `trusted` has signed."""
    return grpc.ssl_channel_credentials(trusted, key, chain)


class GrpcControlCalls:
    """One channel per address, opened at the first call and kept. Create and use it on one loop."""

    def __init__(self, credentials: grpc.ChannelCredentials | None = None) -> None:
        """`credentials` apply to all channels; None: no TLS."""
        self._credentials = credentials
        self._peers: dict[str, _Peer] = {}
        self._formats = PeerFormats()
        self._closed = False
        # Starts the poller's thread now. On a busy machine it takes long to start, and the first
        # call would wait for it.
        grpc.aio.init_grpc_aio()

    async def call(
        self, address: str, request: Message, reply: type[Reply], timeout_ms: int
    ) -> Reply:
        """Send to `host:port`, await the reply. Raises ControlUnavailableError, KafkaError."""
        try:
            payload = self._formats.pack(address, request)
            try:
                answer = await self._send(address, request, payload, timeout_ms)
            except grpc.RpcError as error:
                oldest = request.versions[0]
                if not self._formats.is_older(address, payload, oldest, _refusal(error)):
                    raise
                payload = self._formats.pack(address, request)
                answer = await self._send(address, request, payload, timeout_ms)
            return unpack(reply, answer)
        except grpc.RpcError as error:
            raise _failure(error, address, request) from error
        except ControlFormatError as error:
            text = f"{type(request).__name__} to {address}: {error}"
            raise ControlUnavailableError(text) from error

    async def _send(self, address: str, request: Message, payload: bytes, timeout_ms: int) -> bytes:
        name = type(request).__name__
        if self._closed:
            raise ControlUnavailableError(f"{name}: this client is closed")
        try:
            send = self._peer(address).method(type(request))
            answer: bytes = await send(payload, timeout=timeout_ms / 1000)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the caller was cancelled, and grpcio has cancelled the call
            raise ControlUnavailableError(f"{name} to {address}: cancelled") from error
        except grpc.aio.BaseError as error:  # the channel is closed
            raise ControlUnavailableError(f"{name} to {address}: {error}") from error
        return answer

    async def close(self) -> None:
        """Close every channel; calls in flight fail with ControlUnavailableError."""
        if self._closed:
            return
        self._closed = True
        try:
            while self._peers:
                await self._peers.popitem()[1].channel.close()
        finally:
            grpc.aio.shutdown_grpc_aio()

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Peer(address, self._credentials)
        return peer


class _Peer:
    """The channel to one address, with grpcio's callables of its methods."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.channel = (
            grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
        )
        self._methods: dict[type[Message], Any] = {}

    def method(self, request: type[Message]) -> Any:
        """grpcio's callable for `request`, kept because creating one is expensive."""
        method = self._methods.get(request)
        if method is None:
            method = self._methods[request] = self.channel.unary_unary(method_path(request))
        return method


def _refusal(error: grpc.RpcError) -> str:
    """The reason that the server gives when it refuses a call; empty otherwise."""
    if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
        return ""
    return error.details() or ""


def _failure(error: grpc.RpcError, address: str, request: Message) -> HeadwaterError:
    known = error_from_detail(error.details() or "")
    if known is not None:
        return known
    name = type(request).__name__
    return ControlUnavailableError(f"{name} to {address}: {error.code().name}: {error.details()}")
