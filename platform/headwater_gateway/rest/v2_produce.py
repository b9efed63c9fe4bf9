"""v2: produce records to a topic or to one partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.client.values import RecordMetadata
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import Document
from headwater_gateway.rest.endpoints import Reply, RestRequest, Routes
from headwater_gateway.rest.formats import V2_FORMATS, Format, format_of_kind
from headwater_gateway.rest.kafka_errors import (
    AUTHENTICATION,
    AUTHORIZATION,
    KEY_SCHEMA_MISSING,
    VALUE_SCHEMA_MISSING,
)
from headwater_gateway.rest.schemas import Asked, Codec, Codecs
from headwater_gateway.rest.sending import OutRecord, Sender
from headwater_gateway.rest.turns import in_turns

RECORDS_MAX = 50_000
"""Of one request: others wait while they are handed to the producer."""


class Producing:
    """The routes that produce."""

    def __init__(self, sender: Callable[[], Sender], codecs: Callable[[], Codecs]) -> None:
        self._sender = sender
        self._codecs = codecs

    def add_to(self, routes: Routes) -> None:
        """Add the routes."""
        routes.write("POST", "/topics/{topic}", self.to_topic)
        routes.write("POST", "/topics/{topic}/partitions/{partition}", self.to_partition)

    async def to_topic(self, request: RestRequest) -> Any:
        """To the partitions that records name, else by their keys."""
        return await self._produce(request, None)

    async def to_partition(self, request: RestRequest) -> Any:
        """To the partition of the path."""
        partition = request.number("partition")
        topic = request.part("topic")
        await self._sender().check_partition(request.clients, topic, partition)
        return await self._produce(request, partition)

    async def _produce(self, request: RestRequest, partition: int | None) -> Reply:
        kind = request.http.headers.get("content-type", "")
        form = format_of_kind(kind)
        if form is None:
            kinds = ", ".join(f.media_type for f in V2_FORMATS)
            raise GatewayError(415, 415, f"HTTP 415 Unsupported Media Type: send one of {kinds}")
        topic = request.part("topic")
        document = await request.document()
        rows = document.objects("records")
        if len(rows) > RECORDS_MAX:
            raise GatewayError(413, 413, f"{len(rows)} records: send up to {RECORDS_MAX} at a time")
        await self._sender().partitions(request.clients, topic)
        key = await self._codec(request, form, document, rows, is_key=True)
        value = await self._codec(request, form, document, rows, is_key=False)
        records = [await _record(row, key, value, partition) async for row in in_turns(rows)]
        found = await self._sender().send_all(request.clients, topic, records)
        return Reply(
            {
                "offsets": [_outcome(row) for row in found],
                "key_schema_id": key.schema_id,
                "value_schema_id": value.schema_id,
            },
            _status(found),
        )

    async def _codec(
        self,
        request: RestRequest,
        form: Format,
        document: Document,
        rows: list[Document],
        *,
        is_key: bool,
    ) -> Codec:
        name = "key" if is_key else "value"
        asked = Asked(
            form,
            request.part("topic"),
            is_key=is_key,
            schema_id=document.optional_integer(f"{name}_schema_id"),
            schema=document.optional_text(f"{name}_schema"),
        )
        if form.has_schema and not asked.names_a_schema:
            if any(row.has(name) for row in rows):
                code = KEY_SCHEMA_MISSING if is_key else VALUE_SCHEMA_MISSING
                text = f"Request includes {name}s but does not include {name} schema"
                raise GatewayError(422, code, text)
            asked = Asked(Format.BINARY, request.part("topic"), is_key=is_key)
        return await self._codecs().codec(request.login, asked)


async def _record(row: Document, key: Codec, value: Codec, partition: int | None) -> OutRecord:
    own = row.optional_integer("partition")
    return OutRecord(
        await key.encode(row.any("key"), "key"),
        await value.encode(row.any("value"), "value"),
        partition if own is None else own,
    )


def _outcome(row: RecordMetadata | GatewayError) -> dict[str, Any]:
    if isinstance(row, GatewayError):
        return {"partition": None, "offset": None, "error_code": row.code, "error": str(row)}
    return {"partition": row.partition, "offset": row.offset, "error_code": None, "error": None}


def _status(found: list[RecordMetadata | GatewayError]) -> int:
    """A refusal of one record is the status of all, as in Kafka's proxy."""
    codes = {row.code for row in found if isinstance(row, GatewayError)}
    if AUTHENTICATION in codes:
        return 401
    return 403 if AUTHORIZATION in codes else 200
