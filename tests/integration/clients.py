"""One interface to four Python clients and Kafka's console tools: write records, read them back.

Every client is stock, with its own defaults, but for what a test varies. A reader gives what it
saw as `Seen` rows, so that a test can compare any writer with any reader.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka

from headwater import Consumer, Producer
from integration.jvm_tools import kafka_tool

Headers = tuple[tuple[str, bytes | None], ...]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_MS = 20_000
NULL = "~null~"
"""How the console tools are told to write and read a null."""


class Rec(NamedTuple):
    """A record to write. `timestamp` None: the client's own clock."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None


class Seen(NamedTuple):
    """A record as a reader saw it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Start(NamedTuple):
    """Where to read from: "beginning", "end", "offset" or "timestamp" (milliseconds)."""

    kind: str
    value: int = 0


BEGINNING = Start("beginning")
END = Start("end")
T0 = 1_700_000_000_000

CANONICAL = (
    Rec(b"key", b"value", (), T0),
    Rec(None, b"null key", (), T0 + 10),
    Rec(b"", b"empty key", (), T0 + 20),
    Rec(b"null value", None, (), T0 + 30),
    Rec(b"empty value", b"", (), T0 + 40),
    Rec(None, None, (), T0 + 50),
    Rec(b"", b"", (), T0 + 60),
    Rec(b"order", b"headers", (("b", b"1"), ("a", b"2"), ("b", b"3"), ("a", b"2")), T0 + 70),
    Rec(b"odd", b"headers", (("empty", b""), ("null", None), ("snow", "\u2603".encode())), T0 + 80),
    Rec("k\u00e9y".encode(), "\u03b1\u03b2\u03b3 \U0001f30d".encode(), (), T0 + 90),
    Rec(b"long", b"0123456789" * 3_000, (), T0 + 100),
)
"""Text, so that the console tools can write and read it too."""

BINARY = (
    Rec(bytes(range(256)), bytes(range(255, -1, -1)), (("raw", bytes(range(256))),), T0 + 110),
    Rec(b"\x00", b"\n\t\r\x00" * 50, (), T0),
)
"""Bytes that no console shows; the last one goes back in time."""


def same(seen: Iterable[Seen], records: Sequence[Rec]) -> None:
    """Assert that a reader saw these records in this order, timestamps where they were given."""
    rows = list(seen)
    assert [(r.key, r.value, r.headers) for r in rows] == [
        (r.key, r.value, r.headers) for r in records
    ]
    given = [(s.timestamp, r.timestamp) for s, r in zip(rows, records, strict=True) if r.timestamp]
    assert [a for a, _ in given] == [b for _, b in given]


# Writers: (bootstrap, topic, records, codec, acks) -> offsets as told by the client.


def begin_transaction(
    bootstrap: str, transactional_id: str, topic: str, **settings: Any
) -> confluent_kafka.Producer:
    """librdkafka; an open transaction with one record in partition 0."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(READ_MS / 1000)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", partition=0)
    assert producer.flush(READ_MS / 1000) == 0
    return producer


def write_confluent(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str = "none", acks: str = "all"
) -> list[int]:
    """librdkafka; not idempotent by its own default."""
    told: list[int] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        told.append(message.offset())

    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "acks": acks}
    producer = confluent_kafka.Producer(settings | {"linger.ms": 20})
    for r in records:
        row: dict[str, Any] = {} if r.timestamp is None else {"timestamp": r.timestamp}
        producer.produce(
            topic,
            value=r.value,
            key=r.key,
            headers=list(r.headers),
            partition=0,
            on_delivery=on_delivery,
            **row,
        )
    assert producer.flush(30) == 0
    return told


def write_kafka_python(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str = "none", acks: str = "all"
) -> list[int]:
    """kafka-python: idempotent by default, which acks other than all rule out."""
    settings: dict[str, Any] = {"acks": "all"}
    if acks != "all":
        settings = {"acks": int(acks), "enable_idempotence": False}
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        **settings,
    )
    try:
        futures = [
            producer.send(
                topic,
                value=r.value,
                key=r.key,
                headers=list(r.headers),
                partition=0,
                timestamp_ms=r.timestamp,
            )
            for r in records
        ]
        return [f.get(30).offset for f in futures]
    finally:
        producer.close(10)


def write_aiokafka(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str = "none", acks: str = "all"
) -> list[int]:
    """aiokafka; not idempotent by its own default."""
    return asyncio.run(_write_aiokafka(bootstrap, topic, records, codec, acks))


async def _write_aiokafka(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str, acks: str, **settings: Any
) -> list[int]:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks="all" if acks == "all" else int(acks),
        linger_ms=20,
        **settings,
    )
    async with producer:
        futures = [
            await producer.send(
                topic,
                value=r.value,
                key=r.key,
                headers=list(r.headers),
                partition=0,
                timestamp_ms=r.timestamp,
            )
            for r in records
        ]
        told = await asyncio.gather(*futures)
    return [-1 if t is None else t.offset for t in told]


def write_aiokafka_idempotent(bootstrap: str, topic: str, records: Sequence[Rec]) -> list[int]:
    """aiokafka with a producer id."""
    return asyncio.run(
        _write_aiokafka(bootstrap, topic, records, "none", "all", enable_idempotence=True)
    )


def write_sdk(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str = "none", acks: str = "all"
) -> list[int]:
    """Our own; idempotent by default with acks=all."""
    kind = None if codec == "none" else codec
    with Producer(bootstrap, compression_type=kind, acks=acks, linger_ms=20) as producer:
        futures = [
            producer.send(
                topic,
                r.value,
                key=r.key,
                headers=list(r.headers),
                timestamp=r.timestamp,
                partition=0,
            )
            for r in records
        ]
        return [f.result(30).offset for f in futures]


def write_console(
    bootstrap: str, topic: str, records: Sequence[Rec], codec: str = "none", acks: str = "all"
) -> list[int]:
    """Kafka's console producer: text only, timestamps are its own. It tells no offsets."""
    settings = {
        "parse.key": "true",
        "parse.headers": "true",
        "null.marker": NULL,
        "headers.delimiter": "\t",
    }
    idempotent = "true" if acks == "all" else "false"
    kafka_tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec),
        *("--command-property", f"acks={acks}"),
        *("--command-property", f"enable.idempotence={idempotent}"),
        *(a for k, v in settings.items() for a in ("--reader-property", f"{k}={v}")),
        stdin="".join(_console_line(r) for r in records),
    )
    return []


def _console_line(record: Rec) -> str:
    # An empty header column would be parsed as one header: the null marker stands for none.
    headers = ",".join(f"{k}:{_text(v)}" for k, v in record.headers) or NULL
    return f"{headers}\t{_text(record.key)}\t{_text(record.value)}\n"


def _text(blob: bytes | None) -> str:
    return NULL if blob is None else blob.decode()


def writable(writer: str, records: Sequence[Rec] = CANONICAL) -> tuple[Rec, ...]:
    """Those this client can be given: the console takes no timestamps, some want key or value,
    and kafka-python refuses a header without a value."""
    if writer == "console":
        return tuple(r._replace(timestamp=None) for r in records if r not in BINARY)
    if writer in {"kafka-python", "aiokafka"}:
        records = [r for r in records if r.key is not None or r.value is not None]
    if writer == "kafka-python":
        records = [r for r in records if all(v is not None for _, v in r.headers)]
    return tuple(records)


WRITERS: dict[str, Callable[..., list[int]]] = {
    "confluent-kafka": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
    "sdk": write_sdk,
    "console": write_console,
}


# Readers: (bootstrap, topic, count, start, when_ready) -> rows of partition 0. `when_ready` is
# called once the start is fixed, so that a test can write behind a reader at the end.


def _nothing() -> None:
    return None


def read_confluent(
    bootstrap: str,
    topic: str,
    count: int,
    start: Start = BEGINNING,
    when_ready: Callable[[], object] = _nothing,
) -> list[Seen]:
    """librdkafka with check.crcs."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    at = confluent_kafka.TopicPartition(topic, 0)
    try:
        if start.kind == "timestamp":
            at.offset = start.value
            at = consumer.offsets_for_times([at], 10)[0]
        elif start.kind == "end":
            at.offset = consumer.get_watermark_offsets(at, 10)[1]
        else:
            at.offset = start.value if start.kind == "offset" else confluent_kafka.OFFSET_BEGINNING
        consumer.assign([at])
        when_ready()
        rows: list[Seen] = []
        while len(rows) < count:
            messages = consumer.consume(count - len(rows), READ_MS / 1000)
            assert messages, f"{len(rows)} of {count} records within {READ_MS} ms"
            for m in messages:
                assert m.error() is None, m.error()
                headers = tuple(m.headers() or ())
                rows.append(Seen(m.offset(), m.timestamp()[1], m.key(), m.value(), headers))
        return rows
    finally:
        consumer.close()


def _place(consumer: Any, at: Any, start: Start) -> None:
    """Where to read from; kafka-python's consumer and ours share these calls."""
    if start.kind == "timestamp":
        consumer.seek(at, consumer.offsets_for_times({at: start.value})[at].offset)
    elif start.kind == "offset":
        consumer.seek(at, start.value)
    elif start.kind == "end":
        consumer.seek_to_end(at)
        consumer.position(at)
    else:
        consumer.seek_to_beginning(at)


def read_kafka_python(
    bootstrap: str,
    topic: str,
    count: int,
    start: Start = BEGINNING,
    when_ready: Callable[[], object] = _nothing,
) -> list[Seen]:
    """kafka-python."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    at = kafka.TopicPartition(topic, 0)
    try:
        consumer.assign([at])
        _place(consumer, at, start)
        when_ready()
        rows: list[Seen] = []
        while len(rows) < count:
            got = consumer.poll(READ_MS, max_records=count - len(rows)).get(at, [])
            assert got, f"{len(rows)} of {count} records within {READ_MS} ms"
            rows += [
                Seen(r.offset, r.timestamp, r.key, r.value, _header_pairs(r.headers)) for r in got
            ]
        return rows
    finally:
        consumer.close()


def _header_pairs(headers: Iterable[Sequence[Any]]) -> Headers:
    return tuple((str(k), v) for k, v in headers)


def read_aiokafka(
    bootstrap: str,
    topic: str,
    count: int,
    start: Start = BEGINNING,
    when_ready: Callable[[], object] = _nothing,
) -> list[Seen]:
    """aiokafka."""
    return asyncio.run(_read_aiokafka(bootstrap, topic, count, start, when_ready))


async def _read_aiokafka(
    bootstrap: str, topic: str, count: int, start: Start, when_ready: Callable[[], object]
) -> list[Seen]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    at = aiokafka.TopicPartition(topic, 0)
    async with consumer:
        consumer.assign([at])
        if start.kind == "timestamp":
            found = (await consumer.offsets_for_times({at: start.value}))[at]
            assert found is not None
            consumer.seek(at, found.offset)
        elif start.kind == "offset":
            consumer.seek(at, start.value)
        elif start.kind == "end":
            await consumer.seek_to_end(at)
            await consumer.position(at)
        else:
            await consumer.seek_to_beginning(at)
        await asyncio.to_thread(when_ready)
        rows: list[Seen] = []
        while len(rows) < count:
            got = (await consumer.getmany(at, timeout_ms=READ_MS, max_records=count - len(rows)))[
                at
            ]
            assert got, f"{len(rows)} of {count} records within {READ_MS} ms"
            rows += [
                Seen(r.offset, r.timestamp, r.key, r.value, _header_pairs(r.headers)) for r in got
            ]
        return rows


def read_sdk(
    bootstrap: str,
    topic: str,
    count: int,
    start: Start = BEGINNING,
    when_ready: Callable[[], object] = _nothing,
) -> list[Seen]:
    """Our own, by `poll`."""
    at = (topic, 0)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([at])
        _place(consumer, at, start)
        when_ready()
        rows: list[Seen] = []
        while len(rows) < count:
            got = [r for part in consumer.poll(READ_MS, count - len(rows)).values() for r in part]
            assert got, f"{len(rows)} of {count} records within {READ_MS} ms"
            rows += [Seen(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in got]
        return rows


_CONSOLE_LINE = re.compile(
    r"(CreateTime|LogAppendTime):(-?\d+)\tOffset:(\d+)\t([^\t]*)\t([^\t]*)\t([^\t]*)"
)


def read_console(
    bootstrap: str,
    topic: str,
    count: int,
    start: Start = BEGINNING,
    when_ready: Callable[[], object] = _nothing,
) -> list[Seen]:
    """Kafka's console consumer: text only; it starts at no timestamp and tells no readiness."""
    assert start.kind in {"beginning", "offset"}
    where = str(start.value) if start.kind == "offset" else "earliest"
    shown = ("print.key", "print.headers", "print.timestamp", "print.offset")
    when_ready()
    out = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", where, "--max-messages", str(count), "--timeout-ms", str(READ_MS)),
        *(a for name in shown for a in ("--formatter-property", f"{name}=true")),
        *("--formatter-property", f"null.literal={NULL}"),
    )
    rows = []
    for line in out.splitlines():
        found = _CONSOLE_LINE.fullmatch(line)
        assert found is not None, line
        _, timestamp, offset, headers, key, value = found.groups()
        pairs = [] if headers == "NO_HEADERS" else [h.split(":", 1) for h in headers.split(",")]
        rows.append(
            Seen(
                int(offset),
                int(timestamp),
                _blob(key),
                _blob(value),
                tuple((name, _blob(blob)) for name, blob in pairs),
            )
        )
    return rows


def _blob(text: str) -> bytes | None:
    return None if text == NULL else text.encode()


READERS: dict[str, Callable[..., list[Seen]]] = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
    "sdk": read_sdk,
    "console": read_console,
}
