"""Options of `format("headwater")`, under the names of Spark's Kafka source and sink. Pure.

An unknown option is an error that names it: a typo must not change which records are read. Names
are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import UsageError
from headwater_spark import kafka_options

EARLIEST = -2
"""Kafka's number for the log start, in `startingOffsets` JSON and in ListOffsets."""
LATEST = -1

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"

OffsetMap = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions that a query reads: exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, int], ...] = ()

    def wants(self, topic: str) -> bool:
        """True for a subscribed topic. A pattern must match the whole name, as in Kafka."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(t == topic for t, _ in self.assigned)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading starts or ends: EARLIEST or LATEST, with offsets or times per partition."""

    default: int
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Exact offsets, or EARLIEST or LATEST."""
    timestamps_ms: Mapping[tuple[str, int], int] = field(default_factory=dict)
    timestamp_all_ms: int | None = None

    @property
    def by_timestamp(self) -> bool:
        """True when the bound is given by timestamps."""
        return self.timestamp_all_ms is not None or bool(self.timestamps_ms)

    def timestamp_ms(self, partition: tuple[str, int]) -> int | None:
        """The timestamp of this partition's bound; None when it is an offset."""
        return self.timestamps_ms.get(partition, self.timestamp_all_ms)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of requests. Picklable; travels to tasks."""

    retry_s: float = 60.0
    """Lost connections and retriable errors are retried until none succeeds for this long."""
    request_s: float = 30.0
    """Of one request on one connection."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A reader's checked options. Picklable; travels to tasks."""

    bootstrap_servers: str
    subscription: Subscription
    starting: Bound
    ending: Bound
    timestamp_miss_is_latest: bool = False
    """`startingOffsetsByTimestampStrategy=latest`: a time after the last record is the log end."""
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    isolation_level: str = READ_COMMITTED
    group_id: str | None = None
    """Accepted as in Spark's connector; `commit_progress` is what commits to a group."""
    tables_uri: str | None = None
    """The base folder of log tables where no topic config names one."""
    storage_options: tuple[tuple[str, str], ...] = ()
    use_table: bool = True
    timeouts: Timeouts = Timeouts()
    client_id: str | None = None
    """Of every connection; client quotas are per id."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A writer's checked options. Picklable; travels to tasks."""

    bootstrap_servers: str
    topic: str | None = None
    """Wins over the column `topic`, as in Spark's Kafka sink."""
    compression_type: str | None = None
    batch_bytes: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    timeouts: Timeouts = Timeouts()
    client_id: str | None = None


_RETRY_TIMEOUT = ("headwater.retry.timeout.ms", "kafka.default.api.timeout.ms")
_REQUEST_TIMEOUT = "kafka.request.timeout.ms"
_CLIENT_ID = "kafka.client.id"
_SERVERS = ("kafka.bootstrap.servers", "bootstrap.servers", "bootstrap_servers")
SOURCE_NAMES = (
    *_SERVERS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafka.isolation.level",
    "kafka.group.id",
    "headwater.tables.uri",
    "headwater.use.table",
    *_RETRY_TIMEOUT,
    _REQUEST_TIMEOUT,
    _CLIENT_ID,
)
SINK_NAMES = (
    *_SERVERS,
    "topic",
    "kafka.compression.type",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    *_RETRY_TIMEOUT,
    _REQUEST_TIMEOUT,
    _CLIENT_ID,
)
_STORAGE_PREFIX = "headwater.storage."
# Spark adds these to a user's options.
_OF_SPARK = frozenset({"path", "checkpointlocation", "queryname", "outputmode"})
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class _Side:
    """The names that a source or a sink knows."""

    name: str
    read: tuple[str, ...]
    without_effect: tuple[str, ...]
    refused: Mapping[str, str]
    """Name -> reason and remedy."""


_SOURCE = _Side(
    "source", SOURCE_NAMES, kafka_options.SOURCE_WITHOUT_EFFECT, kafka_options.SOURCE_REFUSED
)
_SINK = _Side("sink", SINK_NAMES, kafka_options.SINK_WITHOUT_EFFECT, kafka_options.SINK_REFUSED)


class _OptionReader:
    """Reads options by name and checks their form; refuses names that the side does not know."""

    def __init__(self, given: Mapping[str, str], side: _Side) -> None:
        self.given = {name.lower(): str(value) for name, value in given.items()}
        for name, value in given.items():
            self._check_name(name, str(value), side)

    @staticmethod
    def _check_name(name: str, value: str, side: _Side) -> None:
        lower = name.lower()
        if lower in _OF_SPARK or lower.startswith(_STORAGE_PREFIX):
            return
        if kafka_options.check_security(name, value):
            return
        reason = next((why for known, why in side.refused.items() if known.lower() == lower), None)
        if reason is not None:
            raise UsageError(f"option {name!r} is not for a headwater {side.name}: {reason}")
        known = (*side.read, *side.without_effect)
        if lower in {k.lower() for k in known}:
            return
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(side.read)}"
        raise UsageError(f"unknown option {name!r} for a headwater {side.name}{hint}")

    def text(self, *names: str) -> str | None:
        """The value of the first of these names that is set."""
        for name in names:
            value = self.given.get(name.lower())
            if value is not None:
                return value.strip()
        return None

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise UsageError(f"option {name!r} must be true or false, not {value!r}")
        return value.lower() == "true"

    def positive(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isdigit() or int(value) < 1:
            raise UsageError(f"option {name!r} must be a whole number of at least 1, not {value!r}")
        return int(value)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise UsageError(f"option {name!r} must be one of {', '.join(choices)}, not {value!r}")
        return value

    def servers(self) -> str:
        value = self.text(*_SERVERS)
        if not value:
            raise UsageError(
                'option "kafka.bootstrap.servers" is missing: give host:port[,host:port...]'
            )
        return value

    def storage_options(self) -> tuple[tuple[str, str], ...]:
        at = len(_STORAGE_PREFIX)
        found = {n[at:]: v for n, v in self.given.items() if n.startswith(_STORAGE_PREFIX)}
        return tuple(sorted(found.items()))


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse and check a reader's options. Raises UsageError that names the option and a remedy."""
    options = _OptionReader(given, _SOURCE)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if options.text(name) is not None:
                raise UsageError(f"option {name!r} is for batch reads; a stream has no end")
    strategy = options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    isolation = options.one_of(
        "kafka.isolation.level", (READ_COMMITTED, READ_UNCOMMITTED), READ_COMMITTED
    )
    return SourceOptions(
        bootstrap_servers=options.servers(),
        subscription=_subscription(options),
        starting=_bound(options, "starting", LATEST if streaming else EARLIEST, streaming),
        ending=_bound(options, "ending", LATEST, streaming),
        timestamp_miss_is_latest=strategy == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        max_offsets_per_trigger=options.positive("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=options.positive("maxBytesPerTrigger"),
        min_partitions=options.positive("minPartitions"),
        max_records_per_partition=options.positive("maxRecordsPerPartition"),
        include_headers=options.flag("includeHeaders", False),
        isolation_level=isolation,
        group_id=options.text("kafka.group.id"),
        tables_uri=options.text("headwater.tables.uri"),
        storage_options=options.storage_options(),
        use_table=options.flag("headwater.use.table", True),
        timeouts=_timeouts(options),
        client_id=options.text(_CLIENT_ID),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse and check a writer's options. Raises UsageError that names the option and a remedy."""
    options = _OptionReader(given, _SINK)
    acks = options.text("kafka.acks")
    if acks is not None and acks not in ("all", "-1"):
        raise UsageError(f"option 'kafka.acks' must be all for a Spark sink, not {acks!r}")
    options.flag("kafka.enable.idempotence", True)
    compression = options.one_of("kafka.compression.type", _COMPRESSIONS, "none")
    return SinkOptions(
        bootstrap_servers=options.servers(),
        topic=options.text("topic"),
        compression_type=None if compression == "none" else compression,
        batch_bytes=options.positive("kafka.batch.size") or 1 << 20,
        delivery_timeout_ms=options.positive("kafka.delivery.timeout.ms") or 120_000,
        timeouts=_timeouts(options),
        client_id=options.text(_CLIENT_ID),
    )


def _timeouts(options: _OptionReader) -> Timeouts:
    default = Timeouts()
    given = [options.positive(name) for name in _RETRY_TIMEOUT]
    retry_ms = next((ms for ms in given if ms is not None), None)
    request_ms = options.positive(_REQUEST_TIMEOUT)
    return Timeouts(
        default.retry_s if retry_ms is None else retry_ms / 1000,
        default.request_s if request_ms is None else request_ms / 1000,
    )


def _subscription(options: _OptionReader) -> Subscription:
    chosen = {n: options.text(n) for n in ("subscribe", "subscribePattern", "assign")}
    given = {name: value for name, value in chosen.items() if value}
    if len(given) != 1:
        raise UsageError(
            "give exactly one of the options subscribe, subscribePattern and assign"
            + (f"; given were {', '.join(given)}" if given else "")
        )
    name, value = given.popitem()
    if name == "subscribe":
        topics = tuple(sorted({t.strip() for t in value.split(",") if t.strip()}))
        if not topics:
            raise UsageError("option 'subscribe' names no topic")
        return Subscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as e:
            raise UsageError(f"option 'subscribePattern' is no regular expression: {e}") from e
        return Subscription(pattern=value)
    document = _document("assign", value)
    pairs = {(t, int(p)) for t, numbers in document.items() for p in numbers}
    if not pairs:
        raise UsageError("option 'assign' names no partition")
    return Subscription(assigned=tuple(sorted(pairs)))


def _bound(options: _OptionReader, side: str, default: int, streaming: bool) -> Bound:
    """`startingTimestamp` wins over `...ByTimestamp`, which wins over `...Offsets` (as Spark)."""
    timestamp = options.text(f"{side}Timestamp")
    if timestamp is not None:
        if not timestamp.isdigit():
            raise UsageError(f"option '{side}Timestamp' must be milliseconds, not {timestamp!r}")
        return Bound(default, timestamp_all_ms=int(timestamp))
    name = f"{side}OffsetsByTimestamp"
    times = options.text(name)
    if times is not None:
        return Bound(default, timestamps_ms=_offset_map(name, times, lowest=0))
    name = f"{side}Offsets"
    value = options.text(name)
    if value is None:
        return Bound(default)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(value.lower())
    if word is not None:
        _check_word(name, side, word, streaming)
        return Bound(word)
    offsets = _offset_map(name, value, lowest=EARLIEST)
    for offset in offsets.values():
        if offset < 0:
            _check_word(name, side, offset, streaming)
    return Bound(default, offsets=offsets)


def _check_word(name: str, side: str, word: int, streaming: bool) -> None:
    if side == "starting" and word == LATEST and not streaming:
        raise UsageError(f"option {name!r}: a batch read can't start at latest; it would be empty")
    if side == "ending" and word == EARLIEST:
        raise UsageError(f"option {name!r}: a read can't end at earliest; it would be empty")


def _offset_map(name: str, text: str, *, lowest: int) -> OffsetMap:
    result: OffsetMap = {}
    for topic, partitions in _document(name, text).items():
        if not isinstance(partitions, dict):
            raise UsageError(f"option {name!r}: topic {topic!r} needs partitions, {_EXAMPLE}")
        for partition, value in partitions.items():
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not str(partition).isdigit() or not is_number or value < lowest:
                raise UsageError(
                    f"option {name!r}: {value!r} of topic {topic!r}, partition {partition!r} is not"
                    f" allowed, {_EXAMPLE}"
                )
            result[topic, int(partition)] = value
    return result


_EXAMPLE = 'e.g. {"flights":{"0":23,"1":-2}}'


def _document(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        hint = "earliest, latest or " if name in ("startingOffsets", "endingOffsets") else ""
        raise UsageError(f"option {name!r} must be {hint}JSON, {_EXAMPLE}; got {text!r}") from e
    if not isinstance(document, dict):
        raise UsageError(f"option {name!r} must be a JSON object, {_EXAMPLE}")
    return document
