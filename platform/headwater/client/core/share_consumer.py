"""The state of a share consumer (KIP-932): what it has acquired, what it holds, what became of it.
Pure.

A record is acquired by a fetch, held once it is returned, and settled by an acknowledgement that a
broker took. Records that are acquired but not returned are dropped when their lock has timed out:
the group delivers them again, and this consumer would process them a second time.

The caller's thread and the loop share one object: who calls holds the consumer's lock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.client.core.share_records import Acquired, AcquiredRange, decode_acquired
from headwater.client.core.share_session import (
    INITIAL_EPOCH,
    Acknowledged,
    FetchLimits,
    Place,
    ShareSession,
)
from headwater.client.errors import IllegalStateError, kafka_error
from headwater.client.share_values import AcknowledgementResult, AcknowledgeType, ShareRecord
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79

ACKNOWLEDGE_TRIES = 5
"""After so many retriable errors in a row the acknowledgements of a partition fail."""
_MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)
"""The leader that gave the records has them no more: a retry there is in vain."""
Collector = dict[TopicPartition, KafkaError | None]
"""What came of acknowledgements, by partition; an error wins."""


class Grant(NamedTuple):
    """What one response has acquired of one partition."""

    session: ShareSession
    place: Place
    partition: TopicPartition
    until: float
    """When the lock times out, in monotonic seconds."""


class Refused(NamedTuple):
    """A partition that a response has no records of, and why."""

    partition: TopicPartition
    code: ErrorCode
    detail: str
    leader_id: int
    leader_epoch: int


class ShareConsumerState:
    """Everything of one share consumer but its membership and its sockets."""

    def __init__(self, group_id: str, member_id: str, *, is_explicit: bool, check_crcs: bool):
        self.is_explicit = is_explicit
        self.lock_timeout_ms: int | None = None
        """Of the last response that named it."""
        self.sessions: dict[int, ShareSession] = {}
        """By node id."""
        self.failure: Exception | None = None
        """An error that the next `take` raises."""
        self.results: deque[AcknowledgementResult] = deque()
        """Results that the caller does not have yet."""
        self.consumed = self.lapsed = self.fetches = 0
        self.acknowledged = self.refused = 0
        self._group_id = group_id
        self._member_id = member_id
        self._check_crcs = check_crcs
        self._acquired: deque[tuple[Grant, Acquired]] = deque()
        self._ready: deque[tuple[Grant, ShareRecord]] = deque()
        self._held: dict[TopicPartition, dict[int, Grant]] = {}
        self._renewed: set[tuple[TopicPartition, int]] = set()
        self._partitions: dict[Place, TopicPartition] = {}
        self._collectors: list[Collector] = []
        self._topics: frozenset[str] | None = None
        """Those that are subscribed to; None before that is told."""

    # --- records ------------------------------------------------------------------------------

    @property
    def held_count(self) -> int:
        """Records that were returned and are not acknowledged."""
        return sum(map(len, self._held.values()))

    def subscribe(self, topics: Iterable[str]) -> None:
        """What was acquired of other topics, and not returned yet, goes back to the group."""
        self._topics = frozenset(topics)
        ready, self._ready = self._ready, deque()
        for grant, row in ready:
            if self._wants(grant):
                self._ready.append((grant, row))
            elif not grant.session.is_over:
                self._release(grant, row.offset, row.offset)

    def _wants(self, grant: Grant) -> bool:
        return self._topics is None or grant.partition.topic in self._topics

    def peek(self, limit: int, now: float) -> list[ShareRecord]:
        """The next records, up to `limit`; they are not held yet. Raises an error that was met,
        once there is no record before it."""
        self._fill(limit, now)
        if not self._ready and self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return [row for _, row in self._some_ready(limit)]

    def take(self, limit: int, now: float) -> list[ShareRecord]:
        """The next records, up to `limit`, which are held from now on. Raises what `peek` does."""
        rows = self.peek(limit, now)
        self.hold(rows)
        return rows

    def hold(self, rows: list[ShareRecord]) -> bool:
        """These rows, which `peek` gave, are the caller's. False, and nothing is held, when they
        are not the next ones any more."""
        first = self._some_ready(len(rows))
        if len(first) < len(rows) or any(a is not b for (_, a), b in zip(first, rows, strict=True)):
            return False
        for grant, row in first:
            self._ready.popleft()
            self._held.setdefault(grant.partition, {})[row.offset] = grant
            self._renewed.discard((grant.partition, row.offset))
        self.consumed += len(rows)
        return True

    def _some_ready(self, limit: int) -> list[tuple[Grant, ShareRecord]]:
        return [self._ready[at] for at in range(min(limit, len(self._ready)))]

    def _fill(self, limit: int, now: float) -> None:
        """Decode until `limit` records are ready; drop what is no longer this member's."""
        while self._ready and not _is_valid(self._ready[0][0], now):
            self._ready.popleft()
            self.lapsed += 1
        while len(self._ready) < limit and self._acquired and self.failure is None:
            grant, acquired = self._acquired.popleft()
            if not _is_valid(grant, now):
                self.lapsed += acquired.offsets
                continue
            if not self._wants(grant):
                for first, last, _ in acquired.ranges:
                    self._release(grant, first, last)
                continue
            try:
                decoded = decode_acquired(acquired, check_crcs=self._check_crcs)
            except (HeadwaterError, ValueError) as e:
                for first, last, _ in acquired.ranges:
                    self._release(grant, first, last)
                self.failure = e
                return
            if decoded.gaps:
                grant.session.gaps.setdefault(grant.place, []).extend(decoded.gaps)
            for first, last in decoded.unread:
                self._release(grant, first, last)
            self._ready.extend((grant, row) for row in decoded.records)

    def _release(self, grant: Grant, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            grant.session.acknowledge(grant.place, offset, AcknowledgeType.RELEASE)

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """The caller's word on a record that it holds; the next request brings it.

        Raises IllegalStateError for one that it does not hold.
        """
        grants = self._held.get(partition, {})
        grant = grants.get(offset)
        if grant is None:
            raise IllegalStateError(
                f"{partition.topic}-{partition.partition} offset {offset} is not held: poll has "
                "not returned it, or it was acknowledged already"
            )
        if kind is AcknowledgeType.RENEW:
            self._renewed.add((partition, offset))
        else:
            del grants[offset]
            self._renewed.discard((partition, offset))
        if grant.session.is_over:
            grants.pop(offset, None)
            self._tell(partition, [offset], _session_over())
            return
        grant.session.acknowledge(grant.place, offset, kind)

    def accept_left_out(self, taken: Iterable[ShareRecord], heard: Iterable[ShareRecord]) -> None:
        """Accept what interceptors have left out of the records that were taken: the caller cannot
        say a word on what it never gets (explicit mode)."""
        if not self.is_explicit:
            return  # all that was taken is accepted
        known = {(row.topic, row.partition, row.offset) for row in heard}
        for row in taken:
            if (row.topic, row.partition, row.offset) not in known:
                place = TopicPartition(row.topic, row.partition)
                self.acknowledge(place, row.offset, AcknowledgeType.ACCEPT)

    def hand_over(self, rows: Iterable[tuple[TopicPartition, int]]) -> None:
        """Forget records that are held by another one now."""
        for partition, offset in rows:
            self._held.get(partition, {}).pop(offset, None)
            self._renewed.discard((partition, offset))

    def accept_held(self) -> None:
        """Accept all that was returned: the implicit mode's acknowledgement."""
        for partition, grants in list(self._held.items()):
            for offset in list(grants):
                self.acknowledge(partition, offset, AcknowledgeType.ACCEPT)

    def check_settled(self) -> None:
        """Raises IllegalStateError while a record has no word of the caller (explicit mode)."""
        for partition, grants in self._held.items():
            for offset in grants:
                if (partition, offset) not in self._renewed:
                    raise IllegalStateError(
                        f"{partition.topic}-{partition.partition} offset {offset} is not "
                        "acknowledged: with explicit acknowledgement every record of a poll has to "
                        "be, before the next poll"
                    )

    def flush(self) -> bool:
        """Send what waits soon; False when nothing does."""
        waiting = [s for s in self.sessions.values() if s.has_waiting]
        for session in waiting:
            session.is_flushing = True
        return bool(waiting)

    @property
    def unsettled(self) -> list[TopicPartition]:
        """Partitions with acknowledgements that no broker has answered."""
        return sorted(
            {
                self._partitions[place]
                for session in self.sessions.values()
                for place in session.waiting.keys() | session.in_flight.keys()
            }
        )

    def collect(self) -> Collector:
        """Collects results until `end_collect`, those first that no caller has yet."""
        collector: Collector = {}
        for result in self.results:
            _collect(collector, result)
        self._collectors.append(collector)
        return collector

    def end_collect(self, collector: Collector) -> None:
        """See `collect`."""
        self._collectors = [c for c in self._collectors if c is not collector]

    def _tell(
        self, partition: TopicPartition, offsets: list[int], error: KafkaError | None
    ) -> None:
        result = AcknowledgementResult(partition, offsets, error)
        if error is None:
            self.acknowledged += len(offsets)
        else:
            self.refused += len(offsets)
        self.results.append(result)
        for collector in self._collectors:
            _collect(collector, result)

    # --- requests -----------------------------------------------------------------------------

    def session(self, node_id: int) -> ShareSession:
        """The session with a node, a new one if there is none."""
        known = self.sessions.get(node_id)
        if known is None:
            known = ShareSession(node_id, self._group_id, self._member_id)
            self.sessions[node_id] = known
        return known

    def fetch_request(
        self, node_id: int, wanted: Mapping[Place, TopicPartition], limits: FetchLimits
    ) -> k78.ShareFetchRequest:
        """The next ShareFetch for a node; it is in flight from now on."""
        session = self.session(node_id)
        self._partitions.update(wanted)
        session.is_fetching = True
        return session.fetch_request(wanted, limits)

    def acknowledge_request(
        self, node_id: int, *, close: bool = False
    ) -> k79.ShareAcknowledgeRequest:
        """The next ShareAcknowledge for a node; it is in flight from now on."""
        session = self.sessions[node_id]
        session.is_flushing = False
        return session.acknowledge_request(close=close)

    def on_fetch(
        self, session: ShareSession, reply: k78.ShareFetchResponse, now: float
    ) -> list[Refused]:
        """Apply a response without an error of its own; the partitions that it refuses."""
        done = session.answered()
        session.is_fetching = False
        self.fetches += 1
        self._note_timeout(reply.acquisition_lock_timeout_ms)
        limit = self.lock_timeout_ms
        until = math.inf if limit is None else now + limit / 1000
        refused: list[Refused] = []
        for topic in reply.responses:
            for row in topic.partitions:
                place = Place(topic.topic_id, row.partition_index)
                partition = self._partitions.get(place)
                if partition is None:  # never asked for: its lock times out
                    continue
                detail = row.acknowledge_error_message or ""
                self._answered(session, place, done, row.acknowledge_error_code, detail, now)
                if row.error_code:
                    code = kafka_error(row.error_code).code
                    leader = row.current_leader
                    refused.append(
                        Refused(
                            partition,
                            code,
                            row.error_message or "",
                            leader.leader_id,
                            leader.leader_epoch,
                        )
                    )
                if row.acquired_records:
                    acquired = Acquired(
                        partition.topic,
                        partition.partition,
                        memoryview(row.records),
                        tuple(
                            AcquiredRange(a.first_offset, a.last_offset, a.delivery_count)
                            for a in row.acquired_records
                        ),
                    )
                    self._acquired.append((Grant(session, place, partition, until), acquired))
        self._unanswered(session, done, now)
        return refused

    def on_acknowledge(
        self, session: ShareSession, reply: k79.ShareAcknowledgeResponse, now: float
    ) -> None:
        """Apply a response without an error of its own."""
        done = session.answered()
        self._note_timeout(reply.acquisition_lock_timeout_ms)
        for topic in reply.responses:
            for row in topic.partitions:
                place = Place(topic.topic_id, row.partition_index)
                detail = row.error_message or ""
                self._answered(session, place, done, row.error_code, detail, now)
        self._unanswered(session, done, now)

    def _note_timeout(self, timeout_ms: int) -> None:
        if timeout_ms > 0:
            self.lock_timeout_ms = timeout_ms

    def _unanswered(self, session: ShareSession, done: Acknowledged, now: float) -> None:
        for place in list(done):
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            self._answered(session, place, done, code, "the response leaves it out", now)

    def _answered(
        self,
        session: ShareSession,
        place: Place,
        done: Acknowledged,
        code: int,
        detail: str,
        now: float,
    ) -> None:
        """What came of the acknowledgements that a request brought for a partition."""
        kinds = done.pop(place, None)
        if kinds is None:
            return
        partition = self._partitions[place]
        where = f"acknowledgements of {partition.topic}-{partition.partition}"
        error = kafka_error(code, f"{where}: {detail}" if detail else where) if code else None
        if error is None:
            session.failures.pop(place, None)
        elif error.retriable and error.code not in _MOVED:
            failures = session.failures[place] = session.failures.get(place, 0) + 1
            if failures < ACKNOWLEDGE_TRIES:
                # What the caller has said since, after a renewal, counts.
                session.waiting[place] = {**kinds, **session.waiting.get(place, {})}
                session.is_flushing = True
                return
        if error is not None:
            self._drop_renewed(partition, kinds)
        self._tell(partition, sorted(kinds), error)

    def _drop_renewed(self, partition: TopicPartition, kinds: Mapping[int, int]) -> None:
        """A renewal failed: the record is not held any more."""
        for offset, kind in kinds.items():
            if kind == AcknowledgeType.RENEW:
                self._held.get(partition, {}).pop(offset, None)
                self._renewed.discard((partition, offset))

    def lose(self, session: ShareSession, error: KafkaError) -> None:
        """A request failed, or the connection: what the session was to bring is lost with it."""
        if self.sessions.get(session.node_id) is session:
            del self.sessions[session.node_id]
        session.is_fetching = False
        for place, kinds in session.end().items():
            partition = self._partitions[place]
            self._drop_renewed(partition, kinds)
            self._tell(partition, sorted(kinds), error)

    def forget_all(self) -> list[ShareSession]:
        """The sessions that are to be closed; nothing is held or buffered any more."""
        self._acquired.clear()
        self._ready.clear()
        self._held.clear()
        self._renewed.clear()
        return [s for s in self.sessions.values() if s.epoch != INITIAL_EPOCH]

    def fetching_nodes(self) -> Iterable[int]:
        """Nodes with a ShareFetch in flight."""
        return [node for node, session in self.sessions.items() if session.is_fetching]


def _is_valid(grant: Grant, now: float) -> bool:
    return now < grant.until and not grant.session.is_over


def _collect(collector: Collector, result: AcknowledgementResult) -> None:
    if collector.get(result.partition) is None:
        collector[result.partition] = result.error


def _session_over() -> KafkaError:
    return kafka_error(
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        "the share session that acquired the record is over: the group delivers it again",
    )
