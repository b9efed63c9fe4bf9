"""The consumer's options, with Kafka's names and defaults, checked when they are given."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater.client.admin.topics import isolation_code
from headwater.client.cluster import Cluster
from headwater.client.core.assignors import Assignor, assignors_named
from headwater.client.errors import kafka_error
from headwater.client.fetcher import FetchOptions
from headwater.errors import ErrorCode, UsageError

RESETS = {"latest": -1, "earliest": -2, "none": None}


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """Times in milliseconds, sizes in bytes.

    `isolation_level` is "read_committed" unlike Kafka's default: what a transaction took back is
    not shown unless asked for. `consumer_timeout_ms`: iteration ends after so long without records.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    client_id: str = "headwater-consumer"
    client_rack: str = ""
    auto_offset_reset: str = "latest"
    isolation_level: str = "read_committed"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    partition_assignment_strategy: tuple[str, ...] | str = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1_048_576
    check_crcs: bool = True
    consumer_timeout_ms: int | None = None
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 50
    metadata_max_age_ms: int = 300_000
    default_api_timeout_ms: int = 60_000
    bootstrap_timeout_ms: int = 10_000


def parse(options: Mapping[str, Any]) -> ConsumerOptions:
    """Raises UsageError that names an unknown option, the nearest known one, or a bad value."""
    known = [f.name for f in dataclasses.fields(ConsumerOptions)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"Consumer has no option {name!r}{hint}")
    parsed = ConsumerOptions(**options)
    if parsed.auto_offset_reset not in RESETS:
        raise UsageError(
            f"auto_offset_reset {parsed.auto_offset_reset!r} is not one of {', '.join(RESETS)}"
        )
    isolation_code(parsed.isolation_level)
    assignors(parsed)
    return parsed


def assignors(options: ConsumerOptions) -> tuple[Assignor, ...]:
    """The assignors by preference. Raises UsageError."""
    names = options.partition_assignment_strategy
    return assignors_named((names,) if isinstance(names, str) else tuple(names))


def fetch_options(options: ConsumerOptions) -> FetchOptions:
    """What the fetcher needs of them."""
    return FetchOptions(
        isolation=isolation_code(options.isolation_level),
        min_bytes=options.fetch_min_bytes,
        max_bytes=options.fetch_max_bytes,
        max_partition_bytes=options.max_partition_fetch_bytes,
        max_wait_ms=options.fetch_max_wait_ms,
        reset_to=RESETS[options.auto_offset_reset],
        rack_id=options.client_rack,
    )


async def partition_count(cluster: Cluster, topic: str) -> int:
    """How many partitions a topic has, asked of the cluster when it is not known."""

    async def attempt() -> int:
        if topic not in cluster.cache.topics:
            await cluster.refresh((topic,), auto_create=True)
        known = cluster.cache.topics.get(topic)
        if known is None:
            code = cluster.cache.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise kafka_error(code, f"topic {topic} does not exist")
        return len(known.partitions)

    return await cluster.retrying(f"partitions of {topic}", attempt)
