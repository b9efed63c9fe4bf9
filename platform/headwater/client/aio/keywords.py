"""The options of the asyncio clients and of `CheckpointedProducer`, as keywords for type checkers.

Their defaults are those of `Producer`, `Consumer` and `Admin`; a test compares names and types.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from headwater.client.admin.options import OnWait
from headwater.client.consumer_options import (
    AssignorChoice,
    AutoOffsetReset,
    GroupProtocol,
    IsolationLevel,
    OnError,
)
from headwater.client.interceptors import Interceptor
from headwater.client.option_rules import NOWHERE, checked
from headwater.client.producer_options import Acks, CompressionType, Partitioner, PartitionerName
from headwater.client.security_options import SecurityOptions
from headwater.client.share_options import AcknowledgementMode, AcquireMode

T = TypeVar("T")


class CheckpointedProducerKeywords(SecurityOptions, total=False):
    """Keywords of `CheckpointedProducer`: those of `headwater.Producer` but of its transactions."""

    client_id: str
    acks: Acks
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_request_size: int
    compression_type: CompressionType | None
    compression_level: int | None
    enable_idempotence: bool | None
    transaction_two_phase_commit_enable: bool
    max_in_flight_requests_per_connection: int
    partitioner: Partitioner | PartitionerName | None
    interceptors: Sequence[Interceptor]
    allow_auto_create_topics: bool
    max_block_ms: float
    delivery_timeout_ms: float
    request_timeout_ms: int
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    metadata_max_age_ms: float
    socket_connection_setup_timeout_ms: float
    bootstrap_timeout_ms: float
    outage_report_ms: float
    on_error: OnError | None


class ProducerKeywords(CheckpointedProducerKeywords, total=False):
    """Keywords of `AsyncProducer`; see `headwater.Producer`."""

    transactional_id: str | None
    transaction_timeout_ms: int


class ConsumerKeywords(SecurityOptions, total=False):
    """Keywords of `AsyncConsumer`; see `headwater.Consumer`."""

    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    client_id: str
    client_rack: str
    auto_offset_reset: AutoOffsetReset
    isolation_level: IsolationLevel
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    partition_assignment_strategy: AssignorChoice | Sequence[AssignorChoice]
    interceptors: Sequence[Interceptor]
    session_timeout_ms: int
    heartbeat_interval_ms: float
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    check_crcs: bool
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    consumer_timeout_ms: float | None
    request_timeout_ms: int
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    metadata_max_age_ms: float
    default_api_timeout_ms: float
    socket_connection_setup_timeout_ms: float
    bootstrap_timeout_ms: float
    server_error_timeout_ms: float
    stale_leader_timeout_ms: float
    outage_report_ms: float
    on_error: OnError | None


class ShareConsumerKeywords(SecurityOptions, total=False):
    """Keywords of `AsyncShareConsumer`; see `headwater.ShareConsumer`."""

    client_id: str
    client_rack: str
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode
    interceptors: Sequence[Interceptor]
    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool
    consumer_timeout_ms: float | None
    request_timeout_ms: int
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    metadata_max_age_ms: float
    default_api_timeout_ms: float
    socket_connection_setup_timeout_ms: float
    bootstrap_timeout_ms: float
    outage_report_ms: float
    on_error: OnError | None


class AdminKeywords(SecurityOptions, total=False):
    """Keywords of `AsyncAdmin`; see `headwater.Admin`."""

    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    socket_connection_setup_timeout_ms: float
    bootstrap_timeout_ms: float
    on_wait: OnWait | None


def options_of(
    owner: str,
    face: Any,
    kind: type[T],
    given: Mapping[str, Any],
    elsewhere: Mapping[str, str] = NOWHERE,
) -> T:
    """The checked options `kind` of an asyncio client: `given`, and the defaults of its blocking
    `face`. Raises OptionError, UsageError; messages name `owner`."""
    parameters = inspect.signature(face).parameters
    named = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    unknown = {name: value for name, value in given.items() if name not in {*named, *defaults}}
    return checked(owner, kind, {**defaults, **given}, unknown, elsewhere)
