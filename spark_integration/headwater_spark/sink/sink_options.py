"""Options of the sink of `format("headwater")`, under the names of Spark's Kafka sink. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import UsageError
from headwater.topic_names import topic_name_fault
from headwater_spark import kafka_options
from headwater_spark.options import (
    CLIENT_ID,
    REQUEST_TIMEOUT,
    RETRY_TIMEOUT,
    SERVERS,
    OptionReader,
    OptionSide,
    Timeouts,
    timeouts_of,
)
from headwater_spark.task_security import NO_SECURITY, TaskSecurity, task_security

EXACTLY_ONCE = "exactly-once"
"""A streaming write is one epoch transaction per micro-batch, a batch write one transaction."""
AT_LEAST_ONCE = "at-least-once"
"""Idempotent producers without transactions: what Spark runs again is written again."""


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
    security: TaskSecurity = NO_SECURITY
    client_id: str | None = None
    delivery: str = EXACTLY_ONCE
    sink_id: str | None = None
    """Names the sink at the brokers in place of the query's id."""

    @property
    def is_exactly_once(self) -> bool:
        """True when rows are written in an epoch transaction."""
        return self.delivery == EXACTLY_ONCE


SINK_NAMES = (
    *SERVERS,
    "topic",
    "kafka.compression.type",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    *RETRY_TIMEOUT,
    REQUEST_TIMEOUT,
    CLIENT_ID,
    "headwater.delivery",
    "headwater.sink.id",
)
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_SINK = OptionSide(
    "sink", SINK_NAMES, kafka_options.SINK_WITHOUT_EFFECT, kafka_options.SINK_REFUSED
)


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse and check a writer's options. Raises UsageError that names the option and a remedy."""
    options = OptionReader(given, _SINK)
    acks = options.text("kafka.acks")
    if acks is not None and acks not in ("all", "-1"):
        raise UsageError(f"option 'kafka.acks' must be all for a Spark sink, not {acks!r}")
    options.flag("kafka.enable.idempotence", True)
    compression = options.one_of("kafka.compression.type", _COMPRESSIONS, "none")
    delivery = options.one_of("headwater.delivery", (EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE)
    return SinkOptions(
        bootstrap_servers=options.servers(),
        topic=_topic(options),
        compression_type=None if compression == "none" else compression,
        batch_bytes=options.positive("kafka.batch.size") or 1 << 20,
        delivery_timeout_ms=options.positive("kafka.delivery.timeout.ms") or 120_000,
        timeouts=timeouts_of(options),
        security=task_security(options.given),
        client_id=options.text(CLIENT_ID),
        delivery=delivery,
        sink_id=_sink_id(options, delivery),
    )


def _topic(options: OptionReader) -> str | None:
    topic = options.text("topic")
    fault = None if topic is None else topic_name_fault(topic)
    if fault:
        raise UsageError(f"option 'topic' is {topic!r}: {fault}")
    return topic


def _sink_id(options: OptionReader, delivery: str) -> str | None:
    sink_id = options.text("headwater.sink.id")
    if sink_id is None:
        return None
    _, dot, last = sink_id.rpartition(".")
    fault = topic_name_fault(sink_id)
    if not fault and dot and last.isdecimal():
        fault = "the part after the last dot may not be a number"
    if fault:
        raise UsageError(
            f"option 'headwater.sink.id' is {sink_id!r}, but needs a name as topics have: {fault}"
        )
    if delivery == AT_LEAST_ONCE:
        raise UsageError(
            "option 'headwater.sink.id' names an exactly-once sink: leave it out, or leave out"
            " headwater.delivery=at-least-once"
        )
    return sink_id
