"""Options of the sink of `format("headwater")`, under the names of Spark's Kafka sink. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import UsageError
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
    return SinkOptions(
        bootstrap_servers=options.servers(),
        topic=options.text("topic"),
        compression_type=None if compression == "none" else compression,
        batch_bytes=options.positive("kafka.batch.size") or 1 << 20,
        delivery_timeout_ms=options.positive("kafka.delivery.timeout.ms") or 120_000,
        timeouts=timeouts_of(options),
        client_id=options.text(CLIENT_ID),
    )
