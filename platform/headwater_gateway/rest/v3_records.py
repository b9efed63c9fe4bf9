"""v3: produce records, one by one or as a stream with ordered reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.client.values import Headers, RecordMetadata
from headwater.errors import HeadwaterError
from headwater_gateway.app.bodies import BodyHold
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.concatenated_json import Splitter
from headwater_gateway.rest.documents import Document, bad_request, encoded, from_base64, parsed
from headwater_gateway.rest.endpoints import JSON, Reply, RestRequest, Routes
from headwater_gateway.rest.formats import Format
from headwater_gateway.rest.kafka_errors import as_reply
from headwater_gateway.rest.schemas import Asked, Codecs
from headwater_gateway.rest.sending import OutRecord, Sender, outcome
from headwater_gateway.rest.v3_resources import ClusterIds
from headwater_gateway.rest.v3_topics import TOPIC

RECORDS = f"{TOPIC}/records"
REPORTS_MAX = 1_000
"""Records of one stream whose reports are to come; the client waits then."""
STREAM_IDLE_S = 300.0
RECORD_BYTES_MAX = 16 * 1024 * 1024
BATCH_MAX = 1_000
ENTRY_ID_CHARS_MAX = 80
INVALID_BATCH = 42208

log = logging.getLogger(__name__)


class Sent(NamedTuple):
    """A record that was handed to the producer, or why not."""

    delivery: Awaitable[RecordMetadata] | GatewayError
    key: Mapping[str, Any] | None = None
    value: Mapping[str, Any] | None = None
    """How the report describes it."""


class Records:
    """The routes that produce."""

    def __init__(
        self, ids: ClusterIds, sender: Callable[[], Sender], codecs: Callable[[], Codecs]
    ) -> None:
        self._ids = ids
        self._sender = sender
        self._codecs = codecs

    def add_to(self, routes: Routes, prefix: str) -> None:
        """Add the routes under `prefix`."""
        routes.write("POST", prefix + RECORDS, self.produce)
        routes.write("POST", f"{prefix}{RECORDS}:batch", self.produce_batch)

    async def produce(self, request: RestRequest) -> Response:
        """Objects one after the other; a report of each in the same order. A refused record has
        its code in its report; a body of one object also has it as the reply's status."""
        cluster = await self._ids.of_path(request)
        topic = request.part("topic_name")
        return RecordStream(self, request, cluster.id, topic)

    async def produce_batch(self, request: RestRequest) -> Reply:
        """Entries with ids of the client; which were written, which not."""
        cluster = await self._ids.of_path(request)
        topic = request.part("topic_name")
        entries = (await request.document()).objects("entries")
        names = [_entry_id(row) for row in entries]
        if not names or len(names) > BATCH_MAX:
            raise GatewayError(422, INVALID_BATCH, f"send 1 to {BATCH_MAX} entries")
        if len(set(names)) < len(names):
            raise GatewayError(422, INVALID_BATCH, "Batch entry IDs are not distinct.")
        sent = [await self.send(request, topic, row) for row in entries]
        successes, failures = [], []
        for name, row in zip(names, sent, strict=True):
            document = report(cluster.id, topic, row, await outcome(row.delivery))
            if document["error_code"] == 200:
                del document["error_code"]
                successes.append({"id": name, **document})
            else:
                failures.append({"id": name, **document})
        return Reply({"successes": successes, "failures": failures}, 207)

    async def send_text(self, request: RestRequest, topic: str, text: bytes) -> Sent:
        """Send the record of one object. Never raises for a bad one."""
        try:
            document = Document(parsed(text), "the record")
        except GatewayError as error:
            return Sent(error)
        return await self.send(request, topic, document)

    async def send(self, request: RestRequest, topic: str, row: Document) -> Sent:
        """Send one record. Never raises: the records before it have been sent, and their reports
        must reach the client, or it would send them again."""
        try:
            key, key_shown = await self._part(request, topic, row, is_key=True)
            value, value_shown = await self._part(request, topic, row, is_key=False)
            record = OutRecord(
                key, value, row.optional_integer("partition_id"), _headers(row), _timestamp(row)
            )
            delivery = await self._sender().send(request.clients, topic, record)
        except HeadwaterError as error:
            return Sent(as_reply(error))
        except Exception as error:
            log.exception("a record for %s failed", ascii(topic))
            return Sent(GatewayError(500, 500, f"Internal Server Error: {type(error).__name__}"))
        return Sent(delivery, key_shown, value_shown)

    async def _part(
        self, request: RestRequest, topic: str, row: Document, *, is_key: bool
    ) -> tuple[bytes | None, Mapping[str, Any] | None]:
        """A key or value, and how its report describes it."""
        name = "key" if is_key else "value"
        if not row.has(name):
            return None, None
        part = row.object(name)
        codec, kind, shown = await self._codec(request, topic, part, is_key=is_key)
        blob = await codec.encode(part.any("data"), name)
        return blob, {"type": kind, **shown, "size": len(blob or b"")}

    async def _codec(
        self, request: RestRequest, topic: str, part: Document, *, is_key: bool
    ) -> tuple[Any, str, dict[str, Any]]:
        named = part.text("type", "").upper()
        asked = Asked(
            _format(part, named),
            topic,
            is_key=is_key,
            schema_id=part.optional_integer("schema_id"),
            schema=part.optional_text("schema"),
            subject=part.optional_text("subject"),
            version=part.optional_integer("schema_version"),
        )
        if named and not asked.form.has_schema:
            return await self._codecs().codec(request.login, asked), named, {}
        if named:
            codec = await self._codecs().codec(request.login, asked)
        else:
            codec, named = await self._codecs().codec_of_named(request.login, asked)
        return codec, named, {"subject": asked.subject_name, "schema_id": codec.schema_id}


class RecordStream(Response):
    """Reads objects, sends records, writes reports: all at once, each waiting for the next."""

    def __init__(self, records: Records, request: RestRequest, cluster: str, topic: str) -> None:
        super().__init__(media_type=JSON)
        self._records = records
        self._request = request
        self._cluster = cluster
        self._topic = topic
        self._sent: asyncio.Queue[Sent | None] = asyncio.Queue(REPORTS_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        receive_raw: Receive = scope["state"]["raw_receive"]
        hold: BodyHold = scope["state"]["body_hold"]
        is_stream = "transfer-encoding" in self._request.http.headers
        async with aclosing(_texts(receive_raw, hold, is_stream=is_stream)) as texts:
            first = await anext(texts, None)
            if first is None:
                raise bad_request("the body is empty: send JSON objects")
            sent = await self._records.send_text(self._request, self._topic, first.text)
            if first.is_last:
                await self._only(sent, scope, receive, send)
                return
            await self._stream(sent, texts, send)

    async def _only(self, sent: Sent, scope: Scope, receive: Receive, send: Send) -> None:
        found = await outcome(sent.delivery)
        if isinstance(found, GatewayError):
            raise found
        body = encoded(report(self._cluster, self._topic, sent, found))
        await Response(body, media_type=JSON)(scope, receive, send)

    async def _stream(self, first: Sent, texts: AsyncIterator[_Text], send: Send) -> None:
        headers = [row for row in self.raw_headers if row[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._sent.put(first)
        reader = asyncio.create_task(self._read(texts))
        try:
            while (sent := await self._sent.get()) is not None:
                found = await outcome(sent.delivery)
                body = encoded(report(self._cluster, self._topic, sent, found)) + b"\r\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _read(self, texts: AsyncIterator[_Text]) -> None:
        """Send what comes; a stream that cannot be read on ends with a report of why."""
        try:
            async for text in texts:
                sent = await self._records.send_text(self._request, self._topic, text.text)
                await self._sent.put(sent)
        except GatewayError as error:
            await self._sent.put(Sent(error))
        await self._sent.put(None)


class _Text(NamedTuple):
    text: bytes
    is_last: bool
    """Nothing comes after it, as far as is known: the body has ended."""


async def _texts(receive: Receive, hold: BodyHold, *, is_stream: bool) -> AsyncGenerator[_Text]:
    """The objects of a body. A stream, whose length is not declared, may go on for as long as the
    client likes: its objects are given at once."""
    splitter = Splitter(RECORD_BYTES_MAX)
    held: bytes | None = None
    more = True
    try:
        while more:
            piece, more = await _piece(receive)
            texts = splitter.feed(piece)
            hold.set(splitter.held_bytes + sum(map(len, texts)))
            for text in texts:
                if held is not None:
                    yield _Text(held, is_last=False)
                held = text
            if is_stream and more and held is not None:
                yield _Text(held, is_last=False)
                held = None
        splitter.end()
    except GatewayError:
        if held is not None:
            yield _Text(held, is_last=False)
        raise
    if held is not None:
        yield _Text(held, is_last=True)


async def _piece(receive: Receive) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(STREAM_IDLE_S):
            message = await receive()
    except TimeoutError:
        raise GatewayError(408, 408, f"no record for {STREAM_IDLE_S:.0f} s") from None
    if message["type"] == "http.disconnect":
        return b"", False
    return message.get("body", b""), message.get("more_body", False)


def report(
    cluster: str, topic: str, sent: Sent, found: RecordMetadata | GatewayError
) -> dict[str, Any]:
    """What became of a record."""
    if isinstance(found, GatewayError):
        return {"error_code": found.code, "message": str(found)}
    at = datetime.fromtimestamp(max(found.timestamp, 0) / 1000, UTC)
    document = {
        "error_code": 200,
        "cluster_id": cluster,
        "topic_name": topic,
        "partition_id": found.partition,
        "offset": found.offset,
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    parts = {"key": sent.key, "value": sent.value}
    return {**document, **{name: part for name, part in parts.items() if part is not None}}


def _format(part: Document, named: str) -> Format:
    """The format of a key or value; without a type it has a schema of whatever language."""
    if not named:
        fields = ("schema_id", "schema", "subject", "subject_name_strategy", "schema_version")
        if not any(part.has(field) for field in fields):
            raise part.wrong("type", "BINARY, JSON, STRING, AVRO, JSONSCHEMA or PROTOBUF")
        return Format.AVRO
    try:
        return Format[named]
    except KeyError:
        raise part.wrong("type", "BINARY, JSON, STRING, AVRO, JSONSCHEMA or PROTOBUF") from None


def _headers(row: Document) -> Headers:
    if not row.has("headers"):
        return []
    found: Headers = []
    for header in row.objects("headers"):
        value = header.any("value")
        blob = None if value is None else from_base64(value, "value of a header")
        found.append((header.text("name"), blob))
    return found


def _timestamp(row: Document) -> int | None:
    """A time as ISO 8601, or ms since 1970; None: now. Raises GatewayError (422)."""
    value = row.any("timestamp")
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return row.integer("timestamp", most=2**63 - 1)
    try:
        at = datetime.fromisoformat(row.text("timestamp"))
        ms = round(at.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        ms = -1
    if ms < 0:
        raise row.wrong("timestamp", "a time such as 2026-11-25T18:30:00Z")
    return ms


def _entry_id(row: Document) -> str:
    name = row.text("id")
    if not name or len(name) > ENTRY_ID_CHARS_MAX:
        raise GatewayError(422, INVALID_BATCH, "Batch entry identifier is not a valid string.")
    return name
