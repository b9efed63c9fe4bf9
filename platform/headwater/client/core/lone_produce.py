"""A Produce request with one batch, and its plain response, by patterns: no codec runs per record.

Both are encoded once per partition and connection, with an empty batch in the request and zeros for
the numbers of the response. Only for flexible versions (KIP-482). Pure.
"""

from __future__ import annotations

import struct
from uuid import UUID

from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.headers import ResponseHeader
from headwater.wire.primitives import write_uvarint
from headwater.wire.schema import encode

RESPONSE_HEADER_VERSION = 1
_REQUEST_HEAD = struct.Struct(">ihhi")
"""Size of what follows, API key, version, correlation id."""
_RESPONSE_HEAD = struct.Struct(">ii")
"""Size of what follows, correlation id."""
_SIZE_BYTES = 4
_EMPTY_BATCH = b"\x01"
_REQUEST_END = bytes(3)
"""No tagged fields of the partition, the topic, the request."""
_NUMBERS = struct.Struct(">qqq")
"""Base offset, log append time, log start offset."""
_RESPONSE_END_BYTES = 9
"""No record errors, no message, no tagged fields of the partition and the topic; the throttle time;
no tagged fields of the response."""


class LoneProduce:
    """Requests for one partition, in one version."""

    __slots__ = ("_numbers_at", "_plain", "_plain_end", "_plain_start", "_request", "_version")

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        *,
        version: int,
        client_id: str | None,
        acks: int,
        timeout_ms: int,
    ) -> None:
        """Raises ValueError for a version that is not flexible."""
        if version < ProduceRequest.flexible:
            raise ValueError(f"Produce version {version} is not flexible")
        self._version = version
        row = PartitionProduceData(index=partition, records=b"")
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=(TopicProduceData(name=topic, topic_id=topic_id, partition_data=(row,)),),
        )
        encoded = encode_request(request, version, 0, client_id)
        self._request = bytes(_SIZE_BYTES) + encoded.removesuffix(_EMPTY_BATCH + _REQUEST_END)
        done = PartitionProduceResponse(index=partition, log_append_time_ms=0, log_start_offset=0)
        response = ProduceResponse(
            responses=(
                TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=(done,)),
            )
        )
        head = encode(ResponseHeader(correlation_id=0), RESPONSE_HEADER_VERSION)
        self._plain = bytes(_SIZE_BYTES) + head + encode(response, version)
        self._numbers_at = len(self._plain) - _RESPONSE_END_BYTES - _NUMBERS.size
        self._plain_start = self._plain[_RESPONSE_HEAD.size : self._numbers_at]
        self._plain_end = self._plain[-_RESPONSE_END_BYTES:]

    def request(self, correlation_id: int, batch: bytes | bytearray) -> bytearray:
        """The request with this batch, and its size before it, as it is sent."""
        out = bytearray(self._request)
        write_uvarint(out, len(batch) + 1)
        out += batch
        out += _REQUEST_END
        size = len(out) - _SIZE_BYTES
        _REQUEST_HEAD.pack_into(out, 0, size, ProduceRequest.api_key, self._version, correlation_id)
        return out

    def acknowledged(self, response: bytes, correlation_id: int) -> tuple[int, int] | None:
        """(base offset, log append time in ms) of a plain success, its size before it. None for any
        other response: an error, a throttle time, something that only the codec knows."""
        at = self._numbers_at
        if (
            len(response) != len(self._plain)
            or _RESPONSE_HEAD.unpack_from(response)[1] != correlation_id
            or response[_RESPONSE_HEAD.size : at] != self._plain_start
            or not response.endswith(self._plain_end)
        ):
            return None
        base_offset, append_time, _ = _NUMBERS.unpack_from(response, at)
        return base_offset, append_time

    def decoded(self, response: bytes, correlation_id: int) -> ProduceResponse:
        """Any response, its size before it. Raises SchemaError and ValueError for a bad one."""
        body = memoryview(response)[_SIZE_BYTES:]
        return decode_response(ProduceResponse, self._version, body, correlation_id)
