"""The options of `Consumer`, checked. Kafka's names with underscores, times in ms, bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headwater.client.cluster import ClusterOptions
from headwater.client.core.assignors import Assignor, assignors_named
from headwater.client.interceptors import Interceptor, interceptors
from headwater.client.option_rules import (
    bootstrap,
    flag,
    function,
    integer,
    name_text,
    number,
    one_of,
    option,
    optional,
    text,
)
from headwater.errors import KafkaError, UsageError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials

AutoOffsetReset = Literal["latest", "earliest", "none"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]
AssignorName = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
GroupProtocol = Literal["classic", "consumer"]
MODERN = "consumer"
"""The group protocol in which the coordinator assigns (KIP-848)."""
AssignorChoice = AssignorName | Assignor
OnError = Callable[[KafkaError], object]
"""Receives each outage that lasts; called on the client's background thread."""

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}
"""Name -> its code in Fetch and ListOffsets."""
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
STRATEGY: tuple[AssignorName, ...] = ("range", "cooperative-sticky")
RESET_TIMESTAMPS = {"latest": -1, "earliest": -2, "none": None}
"""auto_offset_reset -> the timestamp that ListOffsets takes for it."""


def _assignors(name: str, value: Any) -> tuple[Assignor, ...]:
    if isinstance(value, str | Assignor):
        return assignors_named((value,))
    if not isinstance(value, Sequence):
        raise UsageError(f"{name} is {value!r}: give a name, an Assignor, or a list of them")
    return assignors_named(tuple(value))


CLASSIC_ONLY: Mapping[str, tuple[object, str]] = {
    "session_timeout_ms": (
        SESSION_TIMEOUT_MS,
        "set consumer.session.timeout.ms of the group with headwater configs",
    ),
    "heartbeat_interval_ms": (
        HEARTBEAT_INTERVAL_MS,
        "set consumer.heartbeat.interval.ms of the group with headwater configs",
    ),
    "partition_assignment_strategy": (assignors_named(STRATEGY), "give group_remote_assignor"),
}
"""Options of the classic protocol -> default, and what takes its place in the other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """What `Consumer` and `ShareConsumer` both take."""

    bootstrap_servers: list[tuple[str, int]] = option(bootstrap)
    client_id: str = option(text)
    client_rack: str = option(text)
    interceptors: tuple[Interceptor, ...] = option(interceptors)
    max_poll_interval_ms: int = option(integer(1))
    max_poll_records: int = option(integer(1))
    fetch_min_bytes: int = option(integer(0))
    fetch_max_bytes: int = option(integer(0))
    fetch_max_wait_ms: int = option(integer(0))
    check_crcs: bool = option(flag)
    consumer_timeout_ms: float | None = option(optional(number(0)))
    request_timeout_ms: int = option(integer(1))
    retry_backoff_ms: float = option(number(0))
    retry_backoff_max_ms: float = option(number(0))
    metadata_max_age_ms: float = option(number(1))
    default_api_timeout_ms: float = option(number(1))
    socket_connection_setup_timeout_ms: float = option(number(1))
    bootstrap_timeout_ms: float = option(number(0))
    outage_report_ms: float = option(number(1))
    on_error: OnError | None = option(optional(function))
    credentials: Credentials = NO_CREDENTIALS
    """Of the security options."""

    def for_cluster(self) -> ClusterOptions:
        """The options of the connections."""
        return ClusterOptions(
            client_id=self.client_id,
            credentials=self.credentials,
            request_timeout_ms=self.request_timeout_ms,
            connect_timeout_ms=self.socket_connection_setup_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
            default_api_timeout_ms=self.default_api_timeout_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ReaderOptions):
    """What `Consumer` was given. `Consumer.__init__` declares the defaults."""

    group_id: str | None = option(optional(name_text))
    group_instance_id: str | None = option(optional(name_text))
    group_protocol: str = option(one_of({"classic": "classic", MODERN: MODERN}))
    group_remote_assignor: str | None = option(optional(name_text))
    auto_offset_reset: int | None = option(one_of(RESET_TIMESTAMPS))
    isolation_level: int = option(one_of(ISOLATION_LEVELS))
    enable_auto_commit: bool = option(flag)
    auto_commit_interval_ms: float = option(number(0))
    partition_assignment_strategy: tuple[Assignor, ...] = option(_assignors)
    session_timeout_ms: int = option(integer(1))
    heartbeat_interval_ms: float = option(number(1))
    max_partition_fetch_bytes: int = option(integer(0))
    exclude_internal_topics: bool = option(flag)
    allow_auto_create_topics: bool = option(flag)
    server_error_timeout_ms: float = option(number(0))
    stale_leader_timeout_ms: float = option(number(0))

    def __post_init__(self) -> None:
        if self.group_instance_id is not None and self.group_id is None:
            raise UsageError("group_instance_id needs a group_id")
        if self.group_protocol == MODERN and self.group_id is None:
            raise UsageError("group_protocol 'consumer' needs a group_id")
        if self.group_protocol != MODERN and self.group_remote_assignor is not None:
            raise UsageError("group_remote_assignor needs group_protocol='consumer'")
        if self.group_protocol == MODERN:
            self._check_no_classic_options()
        is_classic = self.group_id is not None and self.group_protocol != MODERN
        if is_classic and self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise UsageError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms:g}) has to be less than "
                f"session_timeout_ms ({self.session_timeout_ms})"
            )

    def _check_no_classic_options(self) -> None:
        """The coordinator decides; as Java's consumer, refuse what would have no effect."""
        for name, (usual, remedy) in CLASSIC_ONLY.items():
            if getattr(self, name) != usual:
                raise UsageError(
                    f"{name} is for group_protocol 'classic'; with 'consumer' {remedy}"
                )
