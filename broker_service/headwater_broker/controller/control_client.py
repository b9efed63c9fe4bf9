"""The client side of the control plane: `headwater.ports.control.ControlCalls` over gRPC.

The one adapter of grpcio on the calling side of the broker. It uses grpc.aio: one thread polls for
all channels, without the GIL, and wakes the loop through a socket. grpcio's synchronous calls pass
through Python threads, each of which waits until a busy loop releases the GIL; and a broker that
hangs would hold a thread that calls to other brokers need. The poller exists once per process and
wakes every open loop that created a client, so only the broker's loop should create one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from headwater.errors import HeadwaterError
from headwater.ports.control import TLS_SCHEME, ControlUnavailableError, plain_address
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
FORMER_CHANNEL_GRACE_S = 30.0


class PemKeys(Protocol):
    """A private key, its certificate chain, and the authorities that are trusted, in PEM."""

    @property
    def key(self) -> bytes:
        """The private key."""
        ...

    @property
    def chain(self) -> bytes:
        """Its certificates, its own first."""
        ...

    @property
    def trusted(self) -> bytes:
        """The authorities of servers."""
        ...


class CurrentKeys:
    """Credentials of channels: this certificate, to hosts whose own an authority has signed."""

    def __init__(self, now: Callable[[], PemKeys]) -> None:
        """`now`: the keys, another object when they have changed."""
        self._now = now
        self._keys: PemKeys | None = None
        self._credentials: grpc.ChannelCredentials | None = None

    def __call__(self) -> grpc.ChannelCredentials:
        """The same object while the keys are the same."""
        keys = self._now()
        if keys is not self._keys:
            self._keys = keys
            self._credentials = grpc.ssl_channel_credentials(keys.trusted, keys.key, keys.chain)
        return self._credentials


class GrpcControlCalls:
    """One channel per address, opened at the first call and kept. Create and use it on one loop.

    An address with `tls://` is called with the credentials of the moment, others without TLS.
    """

    def __init__(self, credentials: Callable[[], grpc.ChannelCredentials] | None = None) -> None:
        """`credentials` return another object when they have changed; None: there are none."""
        self._closing: set[asyncio.Task[None]] = set()
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
        credentials = None
        if address.startswith(TLS_SCHEME):
            if self._credentials is None:
                text = f"{address} has TLS: set ssl.keystore.location on this broker, too"
                raise ControlUnavailableError(text)
            credentials = self._credentials()
        peer = self._peers.get(address)
        if peer is not None and peer.credentials is not credentials:
            # Calls in flight end on the channel with the former certificate.
            task = asyncio.ensure_future(peer.channel.close(FORMER_CHANNEL_GRACE_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            peer = None
        if peer is None:
            peer = self._peers[address] = _Peer(plain_address(address), credentials)
        return peer


class _Peer:
    """The channel to one address, with grpcio's callables of its methods."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.credentials = credentials
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
