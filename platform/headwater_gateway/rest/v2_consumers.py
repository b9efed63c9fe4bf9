"""v2: consumers of a group: made, subscribed or assigned, read, committed, ended."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from headwater.aio import AsyncConsumer
from headwater.client.partition_names import Offsets
from headwater.client.values import ConsumerRecord, OffsetAndMetadata, TopicPartition
from headwater.errors import UsageError
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.consumer_instance import (
    BYTES_MAX,
    InstanceSettings,
)
from headwater_gateway.rest.consumers import Consumers
from headwater_gateway.rest.documents import INT64_MAX, Document, encoded, unprocessable
from headwater_gateway.rest.endpoints import Reply, RestRequest, Routes
from headwater_gateway.rest.formats import Format, format_named, format_of_kind
from headwater_gateway.rest.kafka_errors import (
    ALREADY_SUBSCRIBED,
    FORMAT_MISMATCH,
    INVALID_CONSUMER_CONFIG,
    PARTITION_NOT_FOUND,
)
from headwater_gateway.rest.schemas import Codecs

TIMEOUT_MS_MAX = 60_000
NAME_CHARS_MAX = 255
REPEATS_MAX = 3
GROUPS_MAX = 3
_REPEAT = re.compile(r"(?<!\()[*+?{]")
_REPEATED_GROUP = re.compile(r"\)[*+?{]")
INSTANCE = "/consumers/{group}/instances/{instance}"


class Consuming:
    """The routes of consumers."""

    def __init__(
        self, consumers: Callable[[], Consumers], codecs: Callable[[], Codecs], entropy: Any
    ) -> None:
        """`entropy`: gives the `Entropy` for names."""
        self._consumers = consumers
        self._codecs = codecs
        self._entropy = entropy

    def add_to(self, routes: Routes) -> None:
        """Add the routes. A consumer changes its group's offsets: a gateway that is read-only has
        none."""
        routes.write("POST", "/consumers/{group}", self.make)
        routes.write("DELETE", INSTANCE, self.end)
        routes.write("POST", f"{INSTANCE}/subscription", self.subscribe)
        routes.write("GET", f"{INSTANCE}/subscription", self.subscription)
        routes.write("DELETE", f"{INSTANCE}/subscription", self.unsubscribe)
        routes.write("POST", f"{INSTANCE}/assignments", self.assign)
        routes.write("GET", f"{INSTANCE}/assignments", self.assignments)
        routes.write("POST", f"{INSTANCE}/positions", self.seek)
        routes.write("POST", f"{INSTANCE}/positions/beginning", self.seek_to_beginning)
        routes.write("POST", f"{INSTANCE}/positions/end", self.seek_to_end)
        routes.write("GET", f"{INSTANCE}/records", self.records)
        routes.write("POST", f"{INSTANCE}/offsets", self.commit)
        routes.write("GET", f"{INSTANCE}/offsets", self.committed)

    def _use(self, request: RestRequest) -> Any:
        return self._consumers().use(request.login, request.part("group"), request.part("instance"))

    async def make(self, request: RestRequest) -> Any:
        """A new consumer; `base_uri` names this process, which alone has it."""
        document = await request.document()
        group = request.part("group")
        settings, options = instance_settings(document, group, self._entropy().uuid().hex)

        async def open_one() -> AsyncConsumer:
            try:
                return await request.clients.consumer(group_id=group, **options).start()
            except UsageError as error:
                raise unprocessable(
                    f"Invalid consumer configuration: {error}", INVALID_CONSUMER_CONFIG
                ) from error

        await self._consumers().make(request.login, settings, open_one)
        path = f"/consumers/{quote(group, safe='')}/instances/{quote(settings.name, safe='')}"
        return {"instance_id": settings.name, "base_uri": request.base_url + path}

    async def end(self, request: RestRequest) -> Any:
        """The consumer leaves its group."""
        await self._consumers().end(request.login, request.part("group"), request.part("instance"))

    async def subscribe(self, request: RestRequest) -> Any:
        """Topics, or a pattern of them."""
        document = await request.document()
        pattern = safe_pattern(document)
        topics = document.texts("topics") if document.has("topics") or not pattern else []
        if topics and pattern:
            raise GatewayError(409, ALREADY_SUBSCRIBED, "give topics or topic_pattern, not both")
        async with self._use(request) as instance:
            await instance.subscribe(topics, pattern)

    async def subscription(self, request: RestRequest) -> Any:
        """The topics."""
        async with self._use(request) as instance:
            names = instance.topics or sorted({tp.topic for tp in instance.assignment()})
            return {"topics": list(names) if instance.topics or instance.pattern else []}

    async def unsubscribe(self, request: RestRequest) -> Any:
        """Read nothing."""
        async with self._use(request) as instance:
            await instance.unsubscribe()

    async def assign(self, request: RestRequest) -> Any:
        """Partitions, whatever the group has."""
        document = await request.document()
        wanted = [partition_of(row) for row in document.objects("partitions")]
        async with self._use(request) as instance:
            await instance.assign(wanted)

    async def assignments(self, request: RestRequest) -> Any:
        """The partitions that are read."""
        async with self._use(request) as instance:
            rows = [{"topic": tp.topic, "partition": tp.partition} for tp in instance.assignment()]
            return {"partitions": rows}

    async def seek(self, request: RestRequest) -> Any:
        """Go on at offsets."""
        document = await request.document()
        rows = [
            (partition_of(row), row.integer("offset", most=INT64_MAX))
            for row in document.objects("offsets")
        ]
        async with self._use(request) as instance:
            await instance.seek(rows)

    async def seek_to_beginning(self, request: RestRequest) -> Any:
        """Go to the first offsets."""
        document = await request.document()
        wanted = [partition_of(row) for row in document.objects("partitions")]
        async with self._use(request) as instance:
            await instance.seek_to_beginning(wanted)

    async def seek_to_end(self, request: RestRequest) -> Any:
        """Go to the ends."""
        document = await request.document()
        wanted = [partition_of(row) for row in document.objects("partitions")]
        async with self._use(request) as instance:
            await instance.seek_to_end(wanted)

    async def records(self, request: RestRequest) -> Any:
        """The next records, in the consumer's format."""
        async with self._use(request) as instance:
            form = instance.settings.form
            if not accepts(request.http.headers.get("accept", ""), form):
                raise GatewayError(
                    406,
                    FORMAT_MISMATCH,
                    "The requested embedded data format does not match the deserializer for this "
                    f"consumer instance: accept {form.media_type}",
                )
            timeout_ms = request.query_number(
                "timeout", instance.settings.request_timeout_ms, TIMEOUT_MS_MAX
            )
            bytes_max = request.query_number("max_bytes", BYTES_MAX, BYTES_MAX) or BYTES_MAX
            decode = partial(self._decoded, request, form)
            rows: list[bytes] = await instance.read(decode, timeout_ms, bytes_max)
            return Response(b"[" + b",".join(rows) + b"]", media_type=form.media_type)

    async def _decoded(self, request: RestRequest, form: Format, record: ConsumerRecord) -> bytes:
        """The record as JSON; an error for text that UTF-8 cannot hold names its place."""
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        codecs, login = self._codecs(), request.login
        row = {
            "topic": record.topic,
            "key": await codecs.decode(login, form, record.key, f"key of {where}"),
            "value": await codecs.decode(login, form, record.value, f"value of {where}"),
            "partition": record.partition,
            "offset": record.offset,
        }
        try:
            return encoded(row)
        except GatewayError as error:
            raise unprocessable(f"{where}: {error}", error.code) from error

    async def commit(self, request: RestRequest) -> Any:
        """Offsets of the body, else what was read."""
        document = await request.document()
        rows: list[Document] = []
        if document.has("offsets"):
            rows = document.objects("offsets")
        elif document.has("partitions"):
            rows = document.objects("partitions")
        offsets: Offsets = {
            partition_of(row): OffsetAndMetadata(
                row.integer("offset", most=INT64_MAX), row.text("metadata", "")
            )
            for row in rows
        }
        async with self._use(request) as instance:
            await instance.commit(offsets or None)
        return Reply(None, 200)

    async def committed(self, request: RestRequest) -> Any:
        """The group's offsets of partitions that the body names, or of those that are read."""
        document = await request.document()
        async with self._use(request) as instance:
            wanted = instance.assignment()
            if document.has("partitions"):
                wanted = [partition_of(row) for row in document.objects("partitions")]
            elif not wanted:
                raise GatewayError(404, PARTITION_NOT_FOUND, "Partition not found: name some")
            found = await instance.committed(wanted)
            return {"offsets": [_offset(tp, row) for tp, row in sorted(found.items())]}


def safe_pattern(document: Document) -> str:
    """The pattern of topics; this process matches it. Raises GatewayError for one that could take
    for ever: a repeated group, or many repeats, options or groups (`.?` or `(|.)` sixty times)."""
    pattern = document.text("topic_pattern", "")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise document.wrong("topic_pattern", "a regular expression") from None
    is_many = len(_REPEAT.findall(pattern)) > REPEATS_MAX or pattern.count("(") > GROUPS_MAX
    if is_many or _REPEATED_GROUP.search(pattern) or len(pattern) > NAME_CHARS_MAX:
        raise document.wrong(
            "topic_pattern",
            f"up to {REPEATS_MAX} of * + ? {{, {GROUPS_MAX} groups, none of them repeated,"
            f" {NAME_CHARS_MAX} characters",
        )
    return pattern


def instance_settings(
    document: Document, group: str, unique: str
) -> tuple[InstanceSettings, dict[str, Any]]:
    """What a request says of a new consumer: for the gateway, and as options of the SDK's."""
    name = document.optional_text("id") or document.optional_text("name")
    name = name or f"rest-consumer-{unique}"
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise document.wrong("name", f"up to {NAME_CHARS_MAX} printable characters")
    form = format_named(document.text("format", "binary"))
    if form is Format.STRING:
        raise document.wrong("format", "binary, json, avro, jsonschema or protobuf")
    wait_ms = document.integer("consumer.request.timeout.ms", 1_000, TIMEOUT_MS_MAX)
    settings = InstanceSettings(
        group, name, form, wait_ms, document.integer("fetch.min.bytes", 1, BYTES_MAX)
    )
    options: dict[str, Any] = {
        "enable_auto_commit": document.flag(
            "auto.commit.enable", default=document.flag("enable.auto.commit", default=True)
        )
    }
    if document.has("auto.offset.reset"):
        reset = document.text("auto.offset.reset")
        if reset not in ("earliest", "latest", "none"):
            raise unprocessable(
                "Invalid consumer configuration: auto.offset.reset: give earliest, latest or none",
                INVALID_CONSUMER_CONFIG,
            )
        options["auto_offset_reset"] = reset
    return settings, options


def accepts(header: str, form: Format) -> bool:
    """True unless an Accept header asks for records in other formats only."""
    kinds = [part.partition(";")[0].strip().lower() for part in header.split(",") if part.strip()]
    if not kinds:
        return True
    general = {"*/*", "application/*", "application/json", "application/vnd.kafka.v2+json"}
    return any(k in general or format_of_kind(k) is form for k in kinds)


def partition_of(row: Document) -> TopicPartition:
    """The partition that a row names."""
    return TopicPartition(row.text("topic"), row.integer("partition"))


def _offset(partition: TopicPartition, row: OffsetAndMetadata) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": row.offset,
        "metadata": row.metadata,
    }
