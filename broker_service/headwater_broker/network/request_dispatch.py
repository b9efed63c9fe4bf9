"""General requests (all but Produce, Fetch, ShareFetch): decode, call the handler, encode."""

from __future__ import annotations

import dataclasses
import logging
import struct
from collections.abc import Awaitable
from typing import Any

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k18_api_versions import ApiVersionsResponse
from headwater.wire.apis.k26_end_txn import EndTxnRequest
from headwater.wire.primitives import read_tagged
from headwater.wire.schema import Message, SchemaError, decoder, encoder
from headwater_broker.api.context import RequestContext
from headwater_broker.api.k18_api_versions import unsupported_version
from headwater_broker.api.registry import API_VERSIONS_KEY, ApiRow
from headwater_broker.api.replies import CloseConnectionError
from headwater_broker.network.wrong_protocol import TlsClientError, is_client_hello
from headwater_broker.runtime.first_step import Finished, first_step
from headwater_broker.security.session import Session

_FRAME = struct.Struct(">ii")
_FRAME_FLEXIBLE = struct.Struct(">iiB")
_SHORT = struct.Struct(">h")
MALFORMED = (struct.error, IndexError, ValueError, OverflowError, CloseConnectionError)
"""Exceptions of a request that cannot be decoded: its connection is closed."""

logger = logging.getLogger(__name__)


def out_of_bounds(size: int, size_max: int) -> CloseConnectionError:
    """The error of a request of `size` bytes."""
    if is_client_hello(size):
        return TlsClientError("a TLS handshake on a listener without TLS")
    return CloseConnectionError(f"request of {size} bytes (at most {size_max})")


def check_gate(session: Session) -> None:
    """Count a request before authentication. Raises CloseConnectionError for one too many."""
    gate = session.gate
    if gate is not None and not gate.is_open and not gate.admits_request():
        raise CloseConnectionError("too many requests before authentication")


def check_version(row: ApiRow | None, key: int, version: int, session: Session) -> ApiRow:
    """The row that answers this version. Raises CloseConnectionError, which names the versions."""
    check_gate(session)
    if row is None:
        if session.gate is not None and not session.gate.is_open:
            raise CloseConnectionError(f"API key {key} before authentication")
        raise CloseConnectionError(f"unknown API key {key} (version {version})")
    if not row.low <= version <= row.high:
        raise CloseConnectionError(
            f"API key {key} is served in versions {row.low} to {row.high}, not {version}"
        )
    return row


def skip_client_id(view: memoryview, at: int, flexible: bool) -> int:
    """The position after the header's client id, which is at `at`, and its tagged fields."""
    size = _SHORT.unpack_from(view, at)[0]
    at += 2 + size if size > 0 else 2
    return skip_tags(view, at) if flexible else at


def skip_tags(view: memoryview, at: int) -> int:
    """The position after the tagged fields at `at`."""
    return read_tagged(view, at, {}, {})


def client_id_of(view: memoryview, at: int) -> str | None:
    """The header's client id at `at`."""
    size = _SHORT.unpack_from(view, at)[0]
    if size < 0:
        return None
    if at + 2 + size > len(view):
        raise SchemaError(f"client id of {size} bytes runs past the frame")
    return str(view[at + 2 : at + 2 + size], "utf-8")


def unsupported_api_versions(correlation_id: int) -> bytes:
    """The framed response to an unknown version of ApiVersions: error 35 in version 0 (KIP-511)."""
    body = encoder(ApiVersionsResponse, 0)(unsupported_version())
    return _FRAME.pack(len(body) + 4, correlation_id) + body


def frame_reply(row: ApiRow, version: int, correlation_id: int, response: Message) -> bytes:
    """The response with its size and header."""
    body = encoder(row.response, version)(response)
    if row.response_header_flexible(version):
        return _FRAME_FLEXIBLE.pack(len(body) + 5, correlation_id, 0) + body
    return _FRAME.pack(len(body) + 4, correlation_id) + body


def run_handler(
    row: ApiRow, ctx: RequestContext, frame: memoryview, at: int
) -> Message | Awaitable[Message]:
    """Decode the body at `at` and call the handler. Raises CloseConnectionError.

    `frame` must stay valid: requests keep slices of it. Bytes after the last field are ignored, as
    in Kafka: librdkafka 2.16 sends three of them when it requests the metadata of all topics.
    """
    if row.handler is None:
        raise CloseConnectionError(f"API key {row.key} has no general handler")
    request, _ = decoder(row.request, ctx.api_version)(frame, at)
    try:
        response = row.handler(ctx, request)
        if not row.begins_at_once or isinstance(response, Message):
            return response
        begun = first_step(await_response(row, ctx.api_version, response))
        return begun.value if isinstance(begun, Finished) else begun
    except KafkaError as error:
        return error_response(row, ctx.api_version, error)
    except MALFORMED:
        raise
    except Exception as error:
        if (failure := internal_error(row, ctx.api_version, error)) is None:
            raise
        return failure


def internal_error(row: ApiRow, version: int, error: Exception) -> Message | None:
    """A response with UNKNOWN_SERVER_ERROR; None if the response has no top-level error code.

    franz-go takes UNKNOWN_SERVER_ERROR as a success of EndTxn, which might lose its transaction: it
    gets COORDINATOR_NOT_AVAILABLE there, and asks again.
    """
    text, code = f"internal error: {error!r}", ErrorCode.UNKNOWN_SERVER_ERROR
    if row.key == EndTxnRequest.api_key:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    try:
        response = error_response(row, version, KafkaError(code, text))
    except CloseConnectionError:
        return None
    logger.error("request of API key %d failed", row.key, exc_info=error)
    return response


def error_response(row: ApiRow, version: int, error: KafkaError) -> Message:
    """A response with only the error. Raises CloseConnectionError if it has no top-level error
    code."""
    fields = dataclasses.fields(_as_dataclass(row.response))
    names = {field.name for field in fields if version in field.metadata["wire"].versions}
    if "error_code" not in names:
        raise CloseConnectionError(f"API key {row.key}: {error}")
    values: dict[str, Any] = {"error_code": int(error.code)}
    if "error_message" in names:
        values["error_message"] = error.detail or error.code.name
    return row.response(**values)


def _as_dataclass(cls: type[Message]) -> Any:
    return cls


async def await_response(row: ApiRow, version: int, pending: Awaitable[Message]) -> Message:
    """The awaited response; a KafkaError becomes a response with that error."""
    try:
        return await pending
    except KafkaError as error:
        return error_response(row, version, error)
    except MALFORMED:
        raise
    except Exception as error:
        if (response := internal_error(row, version, error)) is None:
            raise
        return response


def is_api_versions_of_unknown_version(row: ApiRow | None, key: int, version: int) -> bool:
    """True for the one request that is answered when its version is unknown."""
    return key == API_VERSIONS_KEY and row is not None and not row.low <= version <= row.high
