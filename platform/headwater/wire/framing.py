"""Frames of the Kafka protocol: header and body of requests and replies, without length prefix."""

from __future__ import annotations

from typing import TypeVar

from headwater.errors import encoding_error
from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import Message, decode, decoder, encode_parts, encoder

M = TypeVar("M", bound=Message)

API_VERSIONS_KEY = 18


def request_header_version(cls: type[Message], version: int) -> int:
    """The request header version: 2 for flexible versions (KIP-482), else 1."""
    return 2 if version >= cls.flexible else 1


def response_header_version(cls: type[Message], version: int) -> int:
    """The response header version: 1 for flexible versions, but always 0 for ApiVersions
    (KIP-511)."""
    return 1 if version >= cls.flexible and cls.api_key != API_VERSIONS_KEY else 0


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Header and body of `request`, without the length prefix.

    Raises UsageError for a string that UTF-8 cannot carry, SchemaError for other bad values.
    """
    try:
        head = _request_head(type(request), version, correlation_id, client_id)
        return head + encoder(type(request), version)(request)
    except UnicodeEncodeError as error:
        raise encoding_error(error) from None


def encode_request_parts(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> list[bytes | bytearray | memoryview]:
    """The same in parts, of which the large blobs are the request's own: they are not copied."""
    try:
        head = _request_head(type(request), version, correlation_id, client_id)
        return encode_parts(request, version, head)
    except UnicodeEncodeError as error:
        raise encoding_error(error) from None


def _request_head(
    cls: type[Message], version: int, correlation_id: int, client_id: str | None
) -> bytes:
    header = RequestHeader(
        request_api_key=cls.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encoder(RequestHeader, request_header_version(cls, version))(header)


def decode_response(
    cls: type[M], version: int, reply: memoryview | bytes, correlation_id: int
) -> M:
    """Decode a reply (header and body) of class `cls`.

    Raises SchemaError, and ValueError if it has another correlation id.
    """
    header, at = decoder(ResponseHeader, response_header_version(cls, version))(reply)
    if header.correlation_id != correlation_id:
        raise ValueError(
            f"reply to request {header.correlation_id} where {correlation_id} was expected"
        )
    return decode(cls, version, memoryview(reply)[at:])
