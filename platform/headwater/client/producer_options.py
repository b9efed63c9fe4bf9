"""The options of `Producer`, checked. Kafka's names with underscores, times in ms, bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from headwater.client.cluster import ClusterOptions
from headwater.client.core.partition_queue import IN_FLIGHT_MAX
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
from headwater.records.compression import Compression
from headwater.wire.primitives import INT64_MAX

Acks = Literal["all", "-1", "0", "1", -1, 0, 1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Partitioner = Callable[[bytes | None, int], int]
"""(key, number of partitions) -> partition."""
PartitionerName = Literal["murmur2", "sticky", "round_robin"]
"""murmur2 of the key, sticky without one: the default. Sticky also with a key
(partitioner.ignore.keys, KIP-794). Each partition in turn."""
OnError = Callable[[KafkaError], object]
"""Receives each outage that lasts; called on the client's background thread."""

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1, -1: -1, 0: 0, 1: 1}
_COMPRESSION = {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}
_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
"""Kafka's ranges of compression.gzip.level, compression.lz4.level and compression.zstd.level."""


def _partitioner(name: str, value: Any) -> Partitioner | str:
    if isinstance(value, str):
        words: dict[str, str] = {word: word for word in get_args(PartitionerName)}
        return one_of(words)(name, value)
    chosen: Partitioner = function(name, value)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """What `Producer` was given. `Producer.__init__` declares the defaults."""

    bootstrap_servers: list[tuple[str, int]] = option(bootstrap)
    client_id: str = option(text)
    acks: int = option(one_of(_ACKS))
    linger_ms: float = option(number(0))
    batch_size: int = option(integer(0))
    buffer_memory: int = option(integer(1, INT64_MAX))
    max_request_size: int = option(integer(1))
    compression_type: str | None = option(optional(one_of(_COMPRESSION)))
    compression_level: int | None = option(optional(integer(-131_072, 22)))
    enable_idempotence: bool | None = option(optional(flag))
    transactional_id: str | None = option(optional(name_text))
    transaction_timeout_ms: int = option(integer(1))
    transaction_two_phase_commit_enable: bool = option(flag)
    max_in_flight_requests_per_connection: int = option(integer(1))
    partitioner: Partitioner | str | None = option(optional(_partitioner))
    interceptors: tuple[Interceptor, ...] = option(interceptors)
    allow_auto_create_topics: bool = option(flag)
    max_block_ms: float = option(number(0))
    delivery_timeout_ms: float = option(number(1))
    request_timeout_ms: int = option(integer(1))
    retry_backoff_ms: float = option(number(0))
    retry_backoff_max_ms: float = option(number(0))
    metadata_max_age_ms: float = option(number(1))
    socket_connection_setup_timeout_ms: float = option(number(1))
    bootstrap_timeout_ms: float = option(number(0))
    outage_report_ms: float = option(number(1))
    on_error: OnError | None = option(optional(function))
    credentials: Credentials = NO_CREDENTIALS
    """Of the security options."""

    def __post_init__(self) -> None:
        in_flight = self.max_in_flight_requests_per_connection
        if self.transactional_id is not None and not self.is_idempotent:
            raise UsageError(
                'transactional_id needs acks="all" and idempotence: leave out enable_idempotence'
            )
        if self.transaction_two_phase_commit_enable and self.transactional_id is None:
            raise UsageError("transaction_two_phase_commit_enable needs a transactional_id")
        if self.is_idempotent and (self.acks != -1 or in_flight > IN_FLIGHT_MAX):
            raise UsageError(
                'enable_idempotence needs acks="all" and max_in_flight_requests_per_connection of '
                f"at most {IN_FLIGHT_MAX}; set enable_idempotence=False"
            )
        level, kind = self.compression_level, self.compression_type
        if level is not None:
            low, high = _LEVELS.get(kind or "none", (0, -1))
            if not low <= level <= high:
                allowed = f"levels {low} to {high}" if low <= high else "no levels"
                raise UsageError(f"compression_level is {level}: {kind} has {allowed}")

    @property
    def is_idempotent(self) -> bool:
        """enable_idempotence; when it is not given, true with acks="all" (KIP-679)."""
        given = self.enable_idempotence
        return self.acks == -1 if given is None else given

    @property
    def own_partitioner(self) -> Partitioner | None:
        """The function that was given, where one was."""
        return None if isinstance(self.partitioner, str) else self.partitioner

    @property
    def compression(self) -> Compression:
        """The codec of `compression_type`."""
        return Compression.parse(self.compression_type)

    @property
    def batch_bytes_max(self) -> int:
        """The size that a batch of several records may have, before compression."""
        return min(self.batch_size, self.max_request_size)

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
        )
