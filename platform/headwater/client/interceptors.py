"""Interceptors: code that sees, and may change, what a client sends and reads (KIP-42).

An interceptor that raises is logged and passed over, as with Kafka's clients.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headwater.client.errors import OptionError
from headwater.client.values import (
    ConsumerRecord,
    OffsetAndMetadata,
    RecordMetadata,
    TopicPartition,
)

T = TypeVar("T")

log = logging.getLogger(__name__)


class SendRecord(NamedTuple):
    """A record that is about to be queued: serialized, its headers as rows."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    """None: the time of the call."""
    partition: int | None
    """None: the partitioner's choice."""


class Interceptor:
    """The base of interceptors: override what is wanted. A producer calls the first two methods, a
    consumer the others. `on_delivery` runs on the client's loop: it must not block. `send_table`
    and `poll_arrow`, which make no records, call nothing."""

    def on_send(self, record: SendRecord) -> SendRecord:
        """What is sent instead of `record`; on the task or thread that sends."""
        return record

    def on_delivery(
        self, record: SendRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        """The record is acknowledged, or was refused or has failed."""

    def on_records(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """What a poll returns instead of these records of one partition."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed."""


class InterceptorChain:
    """Several interceptors, in order."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, record: SendRecord) -> SendRecord:
        """See Interceptor."""
        for one in self._interceptors:
            record = _guarded(partial(one.on_send, record), record)
        return record

    def on_delivery(
        self, record: SendRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        """See Interceptor."""
        for one in self._interceptors:
            _guarded(partial(one.on_delivery, record, metadata, error), None)

    def on_records(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """See Interceptor."""
        for one in self._interceptors:
            records = _guarded(partial(one.on_records, records), records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See Interceptor."""
        for one in self._interceptors:
            _guarded(partial(one.on_commit, offsets), None)


def chain_of(interceptors: Sequence[Interceptor]) -> InterceptorChain | None:
    """The chain of an option's value; None for an empty one."""
    return InterceptorChain(interceptors) if interceptors else None


def interceptors(name: str, value: Any) -> tuple[Interceptor, ...]:
    """A rule for an option (`headwater.client.option_rules`)."""
    listed = (
        tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    )
    for one in listed:
        if not isinstance(one, Interceptor):
            raise OptionError(f"{name} has {one!r}: give objects of subclasses of Interceptor")
    return listed


def _guarded(call: Callable[[], T], otherwise: T) -> T:
    try:
        return call()
    except Exception:
        log.exception("an interceptor raised")
        return otherwise
