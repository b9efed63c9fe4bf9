"""Holds of a share group's records (ShareHolds) over blocking sockets: for Spark and for tools.

    client = RecordClient("127.0.0.1:9092")
    holds = ShareHolds(client, "packers", SystemClock(), retry_timeout_s=60)
    holds.ask(ShareHoldOperation.CLAIM, [HoldRow("orders", topic_id, 0)], owner, ticket)

Each operation may be repeated, and is, until its outcome is known or the time is up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from headwater.client.blocking.cluster import RetryTimer
from headwater.client.blocking.record_client import RecordClient
from headwater.client.core.metadata import NO_LEADER
from headwater.client.errors import kafka_error
from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k10013_share_holds import (
    ShareHoldPartition,
    ShareHoldRange,
    ShareHoldsRequest,
    ShareHoldsResponse,
    ShareHoldsResult,
)
from headwater.wire.share_hold_operation import ShareHoldOperation

Ranges = Sequence[tuple[int, int]]
"""First and last offsets, both inclusive."""


@dataclass(frozen=True, slots=True)
class HoldRow:
    """What is asked of one partition: these ranges, for this batch of the owner."""

    topic: str
    topic_id: UUID
    partition: int
    batch: int = -1
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """Offsets `first` to `last`, both inclusive, that an owner holds for a batch."""

    owner: str
    batch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class HoldOutcome:
    """What came of a row. `holds`: what the owner holds there afterwards; of all owners when it was
    described."""

    error: KafkaError | None
    log_start: int = -1
    holds: tuple[Held, ...] = ()


class ShareHolds:
    """Asks the leaders. One thread at a time."""

    def __init__(
        self,
        client: RecordClient,
        group: str,
        clock: Clock,
        *,
        retry_timeout_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`client` stays the caller's. `sleep` is for tests."""
        self._client = client
        self._group = group
        self._clock = clock
        self._retry_timeout_s = retry_timeout_s
        self._sleep = sleep

    def ask(
        self,
        operation: ShareHoldOperation,
        rows: Iterable[HoldRow],
        owner: str = "",
        ticket: int = -1,
        member: str = "",
    ) -> dict[HoldRow, HoldOutcome]:
        """The outcome of each row; errors that time or another leader may cure are waited out.

        Raises KafkaError: KafkaTimeoutError for those that last; UNSUPPORTED_VERSION of brokers
        without holds; GROUP_AUTHORIZATION_FAILED.
        """
        left = dict.fromkeys(rows)
        found: dict[HoldRow, HoldOutcome] = {}
        what = f"{operation.name} of holds of share group {self._group}"
        patience = RetryTimer(self._clock, self._retry_timeout_s, what, self._sleep)
        while left:
            try:
                failure = self._ask_once(operation, list(left), owner, ticket, member, found)
            except (OSError, KafkaError) as error:
                failure = error
            left = {row: None for row in left if row not in found}
            if failure is not None:
                patience.pause_after(failure)
        return found

    def _ask_once(
        self,
        operation: ShareHoldOperation,
        rows: Sequence[HoldRow],
        owner: str,
        ticket: int,
        member: str,
        found: dict[HoldRow, HoldOutcome],
    ) -> Exception | None:
        """Note the outcomes that are final; an error that is not."""
        failure: Exception | None = None
        for leader, part in self._by_leader(rows).items():
            request = ShareHoldsRequest(
                group_id=self._group,
                operation=operation,
                owner=owner,
                ticket=ticket,
                member_id=member,
                partitions=tuple(_asked(row) for row in part),
            )
            try:
                reply = self._client.call_broker(leader, request, ShareHoldsResponse)
            except OSError as error:  # the others are asked all the same
                failure = error
                continue
            if reply.error_code:
                raise kafka_error(reply.error_code, reply.error_message or self._group)
            for row, result in zip(part, reply.partitions, strict=True):
                outcome = _outcome(row, result)
                if outcome.error is not None and outcome.error.retriable:
                    failure = outcome.error
                else:
                    found[row] = outcome
        return failure

    def _by_leader(self, rows: Sequence[HoldRow]) -> dict[int, list[HoldRow]]:
        topics = self._client.metadata(sorted({row.topic for row in rows}))
        leaders = {
            (name, p.partition): p.leader
            for name, topic in topics.items()
            for p in topic.partitions
        }
        by_leader: dict[int, list[HoldRow]] = {}
        for row in rows:
            leader = leaders.get((row.topic, row.partition), NO_LEADER)
            if leader == NO_LEADER:
                where = f"{row.topic}-{row.partition} has no leader"
                raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, where)
            by_leader.setdefault(leader, []).append(row)
        return by_leader


def _asked(row: HoldRow) -> ShareHoldPartition:
    return ShareHoldPartition(
        topic_id=row.topic_id,
        partition=row.partition,
        batch=row.batch,
        ranges=tuple(ShareHoldRange(first_offset=f, last_offset=last) for f, last in row.ranges),
    )


def _outcome(row: HoldRow, result: ShareHoldsResult) -> HoldOutcome:
    error = None
    if result.error_code:
        detail = result.error_message or f"{row.topic}-{row.partition}"
        error = kafka_error(result.error_code, detail)
    holds = tuple(Held(h.owner, h.batch, h.first_offset, h.last_offset) for h in result.holds)
    return HoldOutcome(error, result.log_start_offset, holds)
