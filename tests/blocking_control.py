"""Control calls over gRPC, blocking: what a process that is no broker would send."""

from __future__ import annotations

from types import TracebackType
from typing import TypeVar

import grpc

from headwater.ports.control import ControlUnavailableError
from headwater.wire.control import StatusReply, StatusRequest
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
CALL_TIMEOUT_MS = 5_000
STATUS_TIMEOUT_MS = 2_000


class ControlClient:
    """A channel to one broker's control port (`host:port`). Threads may share it."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        """`credentials`: None is a channel without TLS."""
        self.address = address
        self._channel = (
            grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)
        )
        self._formats = PeerFormats()

    def call(
        self, request: Message, reply: type[Reply], timeout_ms: int = CALL_TIMEOUT_MS
    ) -> Reply:
        """Send a request and wait for its reply. Raises ControlUnavailableError, KafkaError."""
        name = type(request).__name__
        send = self._channel.unary_unary(method_path(type(request)))
        payload = b""
        try:
            payload = self._formats.pack(self.address, request)
            return unpack(reply, send(payload, timeout=timeout_ms / 1000))
        except grpc.RpcError as error:
            detail = error.details() or ""
            if self._formats.is_older(self.address, payload, request.versions[0], detail):
                return self.call(request, reply, timeout_ms)
            known = error_from_detail(detail)
            if known is not None:
                raise known from error
            text = f"{name} to {self.address}: {error.code().name}: {error.details()}"
            raise ControlUnavailableError(text) from error
        except ControlFormatError as error:
            raise ControlUnavailableError(f"{name} to {self.address}: {error}") from error

    def status(self, timeout_ms: int = STATUS_TIMEOUT_MS) -> StatusReply:
        """The broker's readiness and its view of the cluster."""
        return self.call(StatusRequest(), StatusReply, timeout_ms)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
