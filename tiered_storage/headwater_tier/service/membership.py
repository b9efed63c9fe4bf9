"""Membership of the group `__headwater_tier`: deals out topics, and carries the topics' status.

Every service is a member; whole topics are assigned, by rendezvous hashing, so that a service that
joins or leaves moves few of them. The tiered ends are the group's committed offsets: the group's
lag is what is not in the tables yet, and the offset of partition 0 has the topic's status as its
metadata. Two services that tier one topic only waste work: the fence in the table is what is safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TypeVar

from headwater.client.blocking.cluster import BlockingCluster
from headwater.client.blocking.coordinator import KEY_TYPE_GROUP, CoordinatorClient
from headwater.client.core.assignors import Assignment, Assignor, Counts, Members
from headwater.client.core.classic_group import ClassicMember, NextAction, decode_assignment
from headwater.client.errors import kafka_error
from headwater.client.values import TopicPartition
from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import Credentials
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k12_heartbeat import HeartbeatResponse
from headwater.wire.apis.k13_leave_group import LeaveGroupResponse
from headwater.wire.apis.k14_sync_group import SyncGroupResponse
from headwater.wire.schema import Message, SchemaError
from headwater.wire.tier_status import STATUS_PARTITION, TIER_GROUP
from headwater_tier.service.status import TopicReport

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 15_000
"""After so long without a heartbeat another service takes a dead one's topics."""
REBALANCE_TIMEOUT_MS = 10_000
HEARTBEAT_S = 3.0
WAKE_S = 0.5
CALL_TIMEOUT_S = 15.0
FAILED_PAUSE_S = 1.0
ALONE_AFTER_S = 6.0
"""A service that cannot join for so long tiers all topics."""
REPORT_PARTITIONS_MAX = 500
NAMES_COMMIT_VERSION = 9
"""The last OffsetCommit version with topic names."""
CLIENT_ID = "headwater-tier"
_COORDINATOR_ERRORS = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)

R = TypeVar("R", bound=Message)


def assign_topics(members: Members, counts: Counts) -> Assignment:
    """Every topic to one member, with all its partitions: the member whose hash with it is the
    largest. Pure."""
    out: Assignment = {member: [] for member in members}
    for topic in sorted(counts):
        owner = max(sorted(members), key=lambda member: _weight(topic, member))
        out[owner] += [TopicPartition(topic, p) for p in range(counts[topic])]
    return out


def _weight(topic: str, member: str) -> bytes:
    return blake2b(f"{topic}\n{member}".encode(), digest_size=8).digest()


ASSIGNOR = Assignor("headwater-topics", assign_topics, False)


class TierMember:
    """One service's membership: a thread that joins, sends heartbeats and reports."""

    def __init__(
        self,
        bootstrap_servers: str,
        clock: Clock,
        credentials: Credentials,
        instance_id: str | None = None,
    ) -> None:
        """With an `instance_id`, of which one service runs at a time, a restarted service has its
        topics back at once (KIP-345)."""
        self._clock = clock
        self._cluster = BlockingCluster(
            bootstrap_servers,
            clock,
            client_id=CLIENT_ID,
            request_timeout_s=CALL_TIMEOUT_S,
            retry_timeout_s=CALL_TIMEOUT_S,
            credentials=credentials,
        )
        self._coordinator = CoordinatorClient(self._cluster, KEY_TYPE_GROUP)
        self._member = ClassicMember(
            TIER_GROUP,
            (ASSIGNOR,),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            group_instance_id=instance_id,
        )
        self._lock = threading.Lock()
        self._topics: frozenset[str] = frozenset()
        self._wanted_at: float | None = None
        """Since when there are topics to tier."""
        self._assigned: frozenset[str] | None = None
        self._reports: dict[str, TopicReport] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-member", daemon=True)

    def mine(self, topics: Iterable[str]) -> set[str]:
        """The assigned topics among these. All of them while the group cannot be joined."""
        wanted = frozenset(topics)
        with self._lock:
            if wanted != self._topics:
                self._topics = wanted
                self._wake.set()
            if not wanted:
                return set()
            if self._wanted_at is None:
                self._wanted_at = self._clock.monotonic()
                self._thread.start()
            if self._assigned is not None:
                return set(wanted & self._assigned)
            is_alone = self._clock.monotonic() - self._wanted_at >= ALONE_AFTER_S
            return set(wanted) if is_alone else set()

    def report(self, reports: Sequence[TopicReport]) -> None:
        """Have the topics' status and tiered ends committed soon; a newer report replaces one that
        was not sent yet. Any thread may call."""
        with self._lock:
            self._reports.update({report.status.topic: report for report in reports})

    def close(self) -> None:
        """Send the last reports, leave the group, end the thread."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(2 * CALL_TIMEOUT_S)

    def _run(self) -> None:
        """Join and stay until `close`; any failure is followed by another attempt."""
        said = ""
        while not self._stop.is_set():
            try:
                subscribed = self._join()
                said = ""
                self._stay(subscribed)
            except (KafkaError, OSError, SchemaError) as error:
                if str(error) != said:
                    logger.warning("group %s: %s", TIER_GROUP, error)
                said = str(error)
                self._stop.wait(FAILED_PAUSE_S)
            except Exception:
                logger.exception("group %s: an unexpected error", TIER_GROUP)
                self._stop.wait(FAILED_PAUSE_S)
        try:
            self._leave()
        except (KafkaError, OSError, SchemaError) as error:
            logger.info("left group %s without its answer: %s", TIER_GROUP, error)
        self._cluster.close()

    def _join(self) -> frozenset[str]:
        """Join until the group is stable; the topics that the member subscribed to."""
        while True:
            with self._lock:
                topics = self._topics
            request = self._member.join_request(sorted(topics), [])
            action = self._member.on_join(self._call(request, JoinGroupResponse))
            if action is NextAction.SYNC:
                counts = self._counts() if self._member.is_leader else {}
                synced = self._call(self._member.sync_request(counts), SyncGroupResponse)
                action = self._member.on_sync(synced)
                if action is NextAction.STABLE:
                    assigned = {at.topic for at in decode_assignment(synced.assignment)}
                    with self._lock:
                        self._assigned = frozenset(assigned)
                    return topics
            if action is NextAction.FAIL:
                raise kafka_error(self._member.error, f"joining group {TIER_GROUP}")
            if self._stop.wait(0.0 if action is NextAction.JOIN_AGAIN else FAILED_PAUSE_S):
                return topics

    def _counts(self) -> dict[str, int]:
        """As the leader: the partitions of every member's topics that exist."""
        found = self._cluster.metadata(None)
        wanted = self._member.group_topics
        return {n: len(t.partitions) for n, t in found.items() if n in wanted}

    def _stay(self, subscribed: frozenset[str]) -> None:
        """Heartbeats and reports until the group or the set of topics changes."""
        heartbeat_at = self._clock.monotonic()
        while not self._stop.is_set():
            self._wake.wait(WAKE_S)
            self._wake.clear()
            with self._lock:
                if not self._topics <= subscribed:
                    return
            self._send_reports()
            if self._clock.monotonic() - heartbeat_at < HEARTBEAT_S:
                continue
            heartbeat_at = self._clock.monotonic()
            reply = self._call(self._member.heartbeat_request(), HeartbeatResponse)
            action = self._member.on_heartbeat(reply.error_code)
            if action is not NextAction.STABLE:
                return

    def _send_reports(self) -> None:
        with self._lock:
            reports, self._reports = list(self._reports.values()), {}
        chunk: list[TopicReport] = []
        for report in reports:
            chunk.append(report)
            if sum(len(r.ends) for r in chunk) >= REPORT_PARTITIONS_MAX:
                self._commit(chunk)
                chunk = []
        if chunk:
            self._commit(chunk)

    def _commit(self, reports: Sequence[TopicReport]) -> None:
        request = OffsetCommitRequest(
            group_id=TIER_GROUP,
            generation_id_or_member_epoch=self._member.generation,
            member_id=self._member.member_id,
            group_instance_id=self._member.group_instance_id,
            topics=tuple(map(offsets_of, reports)),
        )
        reply = self._call(request, OffsetCommitResponse)
        failures = {row.error_code for topic in reply.topics for row in topic.partitions} - {0}
        if failures:
            # Of a topic that is gone, or of a generation that has ended: a newer report follows.
            logger.info("group %s did not take a report: errors %s", TIER_GROUP, failures)

    def _leave(self) -> None:
        if not self._member.member_id:
            return
        self._send_reports()
        self._call(self._member.leave_request("the service stops"), LeaveGroupResponse)

    def _call(self, request: Message, reply: type[R]) -> R:
        version = NAMES_COMMIT_VERSION if isinstance(request, OffsetCommitRequest) else None
        return self._coordinator.call(TIER_GROUP, request, reply, _check, cap=version)


def _check(reply: Message) -> None:
    """Raise the KafkaError of a broker that is not the group's coordinator."""
    code = getattr(reply, "error_code", 0)
    if code in _COORDINATOR_ERRORS:
        raise kafka_error(code, f"group {TIER_GROUP}")


def offsets_of(report: TopicReport) -> OffsetCommitRequestTopic:
    """What is committed for a report: the status is the metadata of STATUS_PARTITION, also while
    that partition has no row in the table."""
    metadata = report.status.to_metadata()
    ends = {STATUS_PARTITION: 0, **report.ends}
    return OffsetCommitRequestTopic(
        name=report.status.topic,
        partitions=tuple(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=end,
                committed_metadata=metadata if partition == STATUS_PARTITION else "",
            )
            for partition, end in sorted(ends.items())
        ),
    )
