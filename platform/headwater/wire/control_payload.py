"""Control messages as payloads of gRPC calls, and the options of gRPC channels.

A payload is an int16 format version, then the message encoded in that version. The gRPC method is
the name of the request's class. Server, async client and blocking client share this module.

A request is sent in the newest format of its class, and its reply has the request's format. A
receiver refuses a newer format and names the newest that it reads (`format_detail`). The sender
remembers it (`PeerFormats`) and uses the older format, unless the message needs the newer one.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.schema import Message, SchemaError, decode, encode

SERVICE = "headwater.Control"
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
KAFKA_ERROR_PREFIX = "kafka-error "
FORMAT_PREFIX = "control-format "
OLD_FORMAT_CALLS_MAX = 1000
"""After this many calls in the older format the newest is tried again: the peer may be updated."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", PAYLOAD_BYTES_MAX),
    ("grpc.max_send_message_length", PAYLOAD_BYTES_MAX),
    # A dead broker is restarted within a second: reconnect soon.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
    (
        "grpc.enable_retries",
        0,
    ),  # callers retry by themselves: only they know whether a retry is safe
    ("grpc.enable_http_proxy", 0),
    # A host that is gone without a FIN is detected within some 8 s.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", PAYLOAD_BYTES_MAX),
    ("grpc.max_send_message_length", PAYLOAD_BYTES_MAX),
    ("grpc.so_reuseport", 0),  # a port in use must be an error, never shared
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # More calls of one peer wait at the peer.
    ("grpc.max_concurrent_streams", 256),
)

_PREFIX = struct.Struct(">h")
M = TypeVar("M", bound=Message)


class ControlFormatError(HeadwaterError):
    """A control payload of an unknown format version, or one that does not parse."""


class NewerFormatError(ControlFormatError):
    """A payload in a newer format than this process reads; `newest` is the newest that it reads."""

    def __init__(self, name: str, version: int, newest: int) -> None:
        super().__init__(
            f"{name} came in format {version}; this process reads 0 to {newest}: "
            "run the newer Headwater here, too"
        )
        self.newest = newest


def method_path(request: type[Message]) -> str:
    """The gRPC method that serves `request`: `/headwater.Control/LeaderAndIsrRequest`."""
    return f"/{SERVICE}/{request.__name__}"


def pack(message: Message, version: int | None = None) -> bytes:
    """The payload of `message`, in the newest format of its class or an older one.

    Raises ControlFormatError when the older one cannot carry it.
    """
    if version is None:
        version = type(message).versions[1]
    try:
        return _PREFIX.pack(version) + encode(message, version)
    except SchemaError as error:
        raise ControlFormatError(
            f"{error}: the peer reads only that format; run the newer Headwater there, too"
        ) from error


def format_of(payload: bytes) -> int:
    """The format version of a payload."""
    return int(_PREFIX.unpack_from(payload)[0])


def unpack(cls: type[M], payload: bytes) -> M:
    """The message in `payload`. Raises ControlFormatError."""
    if len(payload) < _PREFIX.size:
        raise ControlFormatError(f"{cls.__name__}: a payload of {len(payload)} bytes")
    (version,) = _PREFIX.unpack_from(payload)
    oldest, newest = cls.versions
    if version > newest:
        raise NewerFormatError(cls.__name__, version, newest)
    if version < oldest:
        raise ControlFormatError(
            f"{cls.__name__} came in format {version}; this process reads {oldest} to {newest}: "
            "run the newer Headwater on the sender, too"
        )
    try:
        return decode(cls, version, memoryview(payload)[_PREFIX.size :])
    except ValueError as error:
        raise ControlFormatError(f"{cls.__name__}: {error}") from error


def format_detail(error: NewerFormatError) -> str:
    """`error` as the details of a failed call, so that the caller can use the older format."""
    return f"{FORMAT_PREFIX}{error.newest} {error}"


class PeerFormats:
    """The newest format that each peer reads, for peers that refused a newer one."""

    def __init__(self) -> None:
        self._older: dict[str, list[int]] = {}
        """Address -> [its newest format, calls until the newest is tried again]."""

    def pack(self, address: str, request: Message) -> bytes:
        """The payload in a format that the peer reads. Raises ControlFormatError."""
        newest = type(request).versions[1]
        known = self._older.get(address)
        if known is None:
            return pack(request, newest)
        known[1] -= 1
        if known[1] <= 0:
            del self._older[address]
        return pack(request, min(known[0], newest))

    def is_older(self, address: str, payload: bytes, oldest: int, detail: str) -> bool:
        """Whether the peer refused `payload` only for its format, so that a retry makes sense."""
        if not detail.startswith(FORMAT_PREFIX):
            return False
        newest = int(detail[len(FORMAT_PREFIX) :].partition(" ")[0])
        if not oldest <= newest < format_of(payload):
            return False
        self._older[address] = [newest, OLD_FORMAT_CALLS_MAX]
        return True


def error_detail(error: KafkaError) -> str:
    """`error` as the details of a failed call, so that the caller can raise it again."""
    return f"{KAFKA_ERROR_PREFIX}{int(error.code)} {error.detail}"


def error_from_detail(detail: str) -> KafkaError | None:
    """The KafkaError in the details of a failed call; None if there is none."""
    if not detail.startswith(KAFKA_ERROR_PREFIX):
        return None
    code, _, text = detail[len(KAFKA_ERROR_PREFIX) :].partition(" ")
    return KafkaError(ErrorCode(int(code)), text)
