"""How a control message becomes the payload of a gRPC call, and how the channels are set up.

A payload is int16 `FORMAT_VERSION` followed by the message's encoding of that version; the gRPC
method is the name of the request's class. Server, async client and blocking client share this.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.control import FORMAT_VERSION
from headwater.wire.schema import Message, decode, encode

SERVICE = "headwater.Control"
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
KAFKA_ERROR_PREFIX = "kafka-error "

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", PAYLOAD_BYTES_MAX),
    ("grpc.max_send_message_length", PAYLOAD_BYTES_MAX),
    # A broker that died is restarted within a second: look again soon.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # the callers retry: only they know whether a repeat is safe
    ("grpc.enable_http_proxy", 0),
    # A host that vanished without a FIN is noticed within some 8 s.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", PAYLOAD_BYTES_MAX),
    ("grpc.max_send_message_length", PAYLOAD_BYTES_MAX),
    ("grpc.so_reuseport", 0),  # a port in use must be an error, never shared in silence
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)

_PREFIX = struct.Struct(">h")
M = TypeVar("M", bound=Message)


class ControlFormatError(HeadwaterError):
    """A control payload of an unknown format version, or bytes that are no such message."""


def method_path(request: type[Message]) -> str:
    """The gRPC method that serves `request`: `/headwater.Control/LeaderAndIsrRequest`."""
    return f"/{SERVICE}/{request.__name__}"


def pack(message: Message) -> bytes:
    """The payload of `message`."""
    return _PREFIX.pack(FORMAT_VERSION) + encode(message, FORMAT_VERSION)


def unpack(cls: type[M], payload: bytes) -> M:
    """The message in `payload`. Raises ControlFormatError."""
    if len(payload) < _PREFIX.size:
        raise ControlFormatError(f"{cls.__name__}: a payload of {len(payload)} bytes")
    (version,) = _PREFIX.unpack_from(payload)
    if not 0 <= version <= FORMAT_VERSION:
        raise ControlFormatError(
            f"{cls.__name__} came in format {version}; this process knows 0 to {FORMAT_VERSION}: "
            "run the same Headwater version on every broker"
        )
    try:
        return decode(cls, version, memoryview(payload)[_PREFIX.size :])
    except ValueError as error:
        raise ControlFormatError(f"{cls.__name__}: {error}") from error


def error_detail(error: KafkaError) -> str:
    """`error` as the details of a failed call, so that the caller can raise it again."""
    return f"{KAFKA_ERROR_PREFIX}{int(error.code)} {error.detail}"


def error_from_detail(detail: str) -> KafkaError | None:
    """The KafkaError that the serving side put into `detail`, if it did."""
    if not detail.startswith(KAFKA_ERROR_PREFIX):
        return None
    code, _, text = detail[len(KAFKA_ERROR_PREFIX) :].partition(" ")
    return KafkaError(ErrorCode(int(code)), text)
