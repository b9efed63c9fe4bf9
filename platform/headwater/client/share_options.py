"""The options of `ShareConsumer`, checked. Kafka's names with underscores, times in ms, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwater.client.cluster import ClusterOptions
from headwater.client.consumer_options import OnError
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
from headwater.ports.credentials import NO_CREDENTIALS, Credentials

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]
ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}
"""Name -> its code in ShareFetch (KIP-1206)."""
RECORD_LIMIT = 1
ELSEWHERE = {
    "auto_offset_reset": "set share.auto.offset.reset of the group with headwater configs",
    "isolation_level": "set share.isolation.level of the group with headwater configs",
    "enable_auto_commit": "share_acknowledgement_mode says who acknowledges",
    "group_instance_id": "members of share groups are never static",
    "partition_assignment_strategy": "the coordinator assigns",
    "session_timeout_ms": "set share.session.timeout.ms of the group with headwater configs",
    "heartbeat_interval_ms": "set share.heartbeat.interval.ms of the group with headwater configs",
}
"""Options of `Consumer` that a share consumer lacks, and what takes their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerOptions:
    """What `ShareConsumer` was given. `ShareConsumer.__init__` declares the defaults."""

    bootstrap_servers: list[tuple[str, int]] = option(bootstrap)
    group_id: str = option(name_text)
    client_id: str = option(text)
    client_rack: str = option(text)
    share_acknowledgement_mode: bool = option(one_of({"implicit": False, "explicit": True}))
    """True: explicit."""
    share_acquire_mode: int = option(one_of(ACQUIRE_MODES))
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
