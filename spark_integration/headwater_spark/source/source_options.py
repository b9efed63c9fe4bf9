"""Options of the source of `format("headwater")`, under the names of Spark's Kafka source. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headwater.errors import UsageError
from headwater.security.store_options import StoreOptions
from headwater.topic_names import topic_name_fault
from headwater.wire.primitives import INT32_MAX, INT64_MAX
from headwater_spark import kafka_options
from headwater_spark.options import (
    CLIENT_ID,
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    REQUEST_TIMEOUT,
    RETRY_TIMEOUT,
    SERVERS,
    OptionReader,
    OptionSide,
    Timeouts,
    timeouts_of,
)
from headwater_spark.task_security import NO_SECURITY, TaskSecurity, task_security

OffsetMap = dict[tuple[str, int], int]

MAX_TRIGGER_DELAY_S = 900.0
"""The default of `maxTriggerDelay`, as in Spark's Kafka source."""
_UNITS_S = {
    "": 1e-3,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
"""Spark's time units; a number without one is in milliseconds."""


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

    def reads(self, topic: str, partition: int) -> bool:
        """True for a subscribed partition, whether it exists or not."""
        return (topic, partition) in self.assigned if self.assigned else self.wants(topic)


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
class TableStart:
    """A start after what the topics' Delta tables held: one of the three fields is set."""

    version: int | None = None
    """`fromDeltaVersion` of the query's only topic."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """`fromDeltaVersion` by topic."""
    time_ms: int | None = None
    """`fromTimestamp`: the newest version that was committed by then."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A reader's checked options. Picklable; travels to tasks."""

    bootstrap_servers: str
    subscription: Subscription
    starting: Bound
    ending: Bound
    from_table: TableStart | None = None
    """Set with `fromDeltaVersion` and `fromTimestamp`; `starting` is not used then."""
    timestamp_miss_is_latest: bool = False
    """`startingOffsetsByTimestampStrategy=latest`: a time after the last record is the log end."""
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = MAX_TRIGGER_DELAY_S
    """The longest wait for `min_offsets_per_trigger`."""
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    isolation_level: str = READ_COMMITTED
    group_id: str | None = None
    """Accepted as in Spark's connector; `commit_progress` is what commits to a group."""
    tables_uri: str | None = None
    """The base folder of log tables where no topic config names one."""
    storage_options: StoreOptions = field(default=(), repr=False)
    use_table: bool = True
    topic_id: str | None = None
    """The id that the topics must have: the tail of a table belongs to that table's topic alone."""
    pushdown: bool = False
    """Batch reads: take the query's filters, which Spark pushes only if its setting says so."""
    timeouts: Timeouts = Timeouts()
    security: TaskSecurity = NO_SECURITY
    client_id: str | None = None
    """Of every connection; client quotas are per id."""


SOURCE_NAMES = (
    *SERVERS,
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
    "fromDeltaVersion",
    "fromTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafka.isolation.level",
    "kafka.group.id",
    "headwater.tables.uri",
    "headwater.use.table",
    "headwater.topic.id",
    "pushdown",
    *RETRY_TIMEOUT,
    REQUEST_TIMEOUT,
    CLIENT_ID,
)
_SOURCE = OptionSide(
    "source", SOURCE_NAMES, kafka_options.SOURCE_WITHOUT_EFFECT, kafka_options.SOURCE_REFUSED
)


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse and check a reader's options. Raises UsageError that names the option and a remedy."""
    options = OptionReader(given, _SOURCE)
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if options.text(name) is not None:
                raise UsageError(f"option {name!r} is for batch reads; a stream has no end")
    strategy = options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    isolation = options.one_of(
        "kafka.isolation.level", (READ_COMMITTED, READ_UNCOMMITTED), READ_COMMITTED
    )
    most = options.positive("maxOffsetsPerTrigger")
    least = options.positive("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise UsageError(
            f"option 'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger', {most}"
        )
    return SourceOptions(
        bootstrap_servers=options.servers(),
        subscription=_subscription(options),
        starting=_bound(options, "starting", LATEST if streaming else EARLIEST, streaming),
        ending=_bound(options, "ending", LATEST, streaming),
        from_table=_table_start(options),
        timestamp_miss_is_latest=strategy == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_s=_seconds(options, "maxTriggerDelay", MAX_TRIGGER_DELAY_S),
        max_bytes_per_trigger=options.positive("maxBytesPerTrigger"),
        min_partitions=options.positive("minPartitions"),
        max_records_per_partition=options.positive("maxRecordsPerPartition"),
        include_headers=options.flag("includeHeaders", False),
        isolation_level=isolation,
        group_id=options.text("kafka.group.id"),
        tables_uri=options.text("headwater.tables.uri"),
        storage_options=options.storage_options(),
        use_table=options.flag("headwater.use.table", True),
        topic_id=options.text("headwater.topic.id"),
        pushdown=options.flag("pushdown", False),
        timeouts=timeouts_of(options),
        security=task_security(options.given),
        client_id=options.text(CLIENT_ID),
    )


def _subscription(options: OptionReader) -> Subscription:
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
        _check_topics(name, topics)
        return Subscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as e:
            raise UsageError(f"option 'subscribePattern' is no regular expression: {e}") from e
        return Subscription(pattern=value)
    return Subscription(assigned=_assigned(value))


def _assigned(text: str) -> tuple[tuple[str, int], ...]:
    example = 'e.g. {"flights":[0,2]}'
    pairs = set()
    for topic, numbers in _document("assign", text, example).items():
        _check_topics("assign", (topic,))
        if not isinstance(numbers, list):
            raise UsageError(
                f"option 'assign': topic {topic!r} needs a list of partitions, {example};"
                f" got {numbers!r}"
            )
        for number in numbers:
            if type(number) is not int or not 0 <= number <= INT32_MAX:
                raise UsageError(
                    f"option 'assign': {number!r} is no partition of topic {topic!r}, {example}"
                )
        pairs |= {(topic, number) for number in numbers}
    if not pairs:
        raise UsageError(f"option 'assign' names no partition, {example}")
    return tuple(sorted(pairs))


def _check_topics(option: str, topics: Iterable[str]) -> None:
    for topic in topics:
        if fault := topic_name_fault(topic):
            raise UsageError(f"option {option!r}: {fault}")


def _table_start(options: OptionReader) -> TableStart | None:
    """`fromDeltaVersion` or `fromTimestamp`, which no other start may contradict."""
    given = [n for n in ("fromDeltaVersion", "fromTimestamp", *_STARTS) if options.text(n)]
    version, time = options.text("fromDeltaVersion"), options.text("fromTimestamp")
    if version is None and time is None:
        return None
    if len(given) > 1:
        raise UsageError(f"options {given[0]!r} and {given[1]!r} both say where to start: give one")
    if time is not None:
        return TableStart(time_ms=_time_ms("fromTimestamp", time))
    assert version is not None
    if version.isdecimal():
        return TableStart(version=int(version))
    example = 'e.g. 12, or {"flights":12,"alerts":3} for several topics'
    document = _document("fromDeltaVersion", version, example)
    versions = {topic: number for topic, number in document.items() if type(number) is int}
    if not document or len(versions) < len(document) or min(versions.values()) < 0:
        raise UsageError(f"option 'fromDeltaVersion' must be versions of tables, {example}")
    return TableStart(versions=versions)


_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")


def _time_ms(name: str, text: str) -> int:
    """A date or time as Delta's timestampAsOf takes it; UTC unless it names an offset."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as e:
        raise UsageError(
            f"option {name!r} must be a date or time, e.g. 2026-11-24 or 2026-11-24T10:00:00Z,"
            f" not {text!r}"
        ) from e
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


def _seconds(options: OptionReader, name: str, default: float) -> float:
    """A duration in Spark's form, such as 15m, 30s, 500ms."""
    text = options.text(name)
    if text is None:
        return default
    form = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    if form is None or form[2] not in _UNITS_S:
        raise UsageError(f"option {name!r} must be a duration, e.g. 15m, 30s, 500ms, not {text!r}")
    return int(form[1]) * _UNITS_S[form[2]]


def _bound(options: OptionReader, side: str, default: int, streaming: bool) -> Bound:
    """`startingTimestamp` wins over `...ByTimestamp`, which wins over `...Offsets` (as Spark)."""
    timestamp = options.text(f"{side}Timestamp")
    if timestamp is not None:
        if not timestamp.isdecimal():
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
            if (
                not (partition.isdecimal() and int(partition) <= INT32_MAX)
                or not is_number
                or not lowest <= value <= INT64_MAX
            ):
                raise UsageError(
                    f"option {name!r}: {value!r} of topic {topic!r}, partition {partition!r} is not"
                    f" allowed, {_EXAMPLE}"
                )
            result[topic, int(partition)] = value
    return result


_EXAMPLE = 'e.g. {"flights":{"0":23,"1":-2}}'


def _document(name: str, text: str, example: str = _EXAMPLE) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        hint = "earliest, latest or " if name in ("startingOffsets", "endingOffsets") else ""
        raise UsageError(f"option {name!r} must be {hint}JSON, {example}; got {text!r}") from e
    if not isinstance(document, dict):
        raise UsageError(f"option {name!r} must be a JSON object, {example}; got {text!r}")
    return document
