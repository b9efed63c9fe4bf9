"""Members of one share group (KIP-932), as a client that follows the protocol to the letter.

Each has lives: it joins, fetches what is assigned to it, says what becomes of the records (at once,
too late, or never), renews locks, and leaves or dies. After healing all stay, and accept what comes
until nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.records.record import read_records
from headwater.wire.apis import k76_share_group_heartbeat as k76
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79
from headwater_broker.metadata import znodes
from headwater_broker.replica.share.share_partition import AcknowledgeType
from sim.clients import LOST, RETRIED
from sim.invariants import ViolationError
from sim.plan import LOCK_MS, SHARED
from sim.transaction_clients import GROUP, MOVED, CoordinatorClient

if TYPE_CHECKING:
    from sim.world import World

B = TypeVar("B")

GROUP_ID = "packers"
LIFE_S = (2.0, 12.0)
DEAD_S = (0.0, 2.0)
LEAVE_EPOCH = FINAL_EPOCH = -1
LOCK_S = LOCK_MS / 1000
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW
)  # fmt: skip
FATES = ("accept", "mixed", "release", "reject", "late", "renew", "forget")
WEIGHTS = (60, 8, 8, 4, 10, 6, 4)
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
SESSION_OVER = {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
REFUSED = RETRIED | {
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
"""Errors of partitions that have a reason: INVALID_REQUEST when a new leader has not delivered that
offset yet, or the state has not begun."""


@dataclass(slots=True, kw_only=True)
class Held:
    """Records that a member was given with one delivery count, and what it is to say of them."""

    index: int
    first: int
    last: int
    count: int
    types: tuple[int, ...]
    due_s: float
    renewed: int = 0
    """How many times their lock is to be renewed first."""

    @property
    def sent_types(self) -> tuple[int, ...]:
        """What is said of them next."""
        return (int(RENEW),) if self.renewed else tuple(map(int, self.types))

    def overlaps(self, other: Held) -> bool:
        """Whether an offset is in both."""
        return self.first <= other.last and other.first <= self.last

    def each(self) -> Iterator[tuple[tuple[int, int], int]]:
        """((partition, offset), what is said of it next) of each record."""
        types = self.sent_types
        for offset in range(self.first, self.last + 1):
            yield (self.index, offset), types[0 if len(types) == 1 else offset - self.first]


@dataclass(slots=True)
class Session:
    """The share session with one broker: the epoch of the next request. What is held is kept when
    the session is lost: it is acknowledged in the next one, and must be refused."""

    epoch: int = 0
    held: list[Held] = field(default_factory=list)

    def due(self, now_s: float) -> list[Held]:
        """Takes what is to be acknowledged now; of two for one offset the first."""
        due: list[Held] = []
        for held in self.held:
            clash = any(h.index == held.index and h.overlaps(held) for h in due)
            if held.due_s <= now_s and not clash:
                due.append(held)
        self.held = [held for held in self.held if held not in due]
        due.sort(key=lambda held: (held.index, held.first))
        return due


class ShareMember(CoordinatorClient):
    """One application: one member after the other."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"packer.{number}")
        self.ledger = world.groups.shares
        self.owned: set[tuple[UUID, int]] = set()
        self._lives = self._epoch = 0
        self._answered_s = -1e9
        self._is_in_vain = False
        self._interval_s = 0.1
        self._sessions: dict[str, Session] = {}
        self._leaders: dict[int, str] = {}

    @property
    def told(self) -> str:
        """Its name for messages, and its member id."""
        return f"{self.name}.{self._lives}"

    @property
    def _now(self) -> float:
        return self.world.scheduler.now

    # -- lives

    async def work(self) -> None:
        random = self.world.random
        while not self.world.is_over:
            self._lives += 1
            self._epoch, self._is_in_vain = 0, False
            await self._live(self._now + random.uniform(*LIFE_S))
            if self.world.is_over:
                return
            await self._end()
            await asyncio.sleep(random.uniform(*DEAD_S))

    async def _live(self, ends_s: float) -> None:
        """Until the end of this life, which does not come after healing."""
        due_s = self._now
        while not self.world.is_over and (self._now < ends_s or self.world.is_healing):
            if self._now >= due_s:
                if not await self._heartbeat():
                    await self.pause()
                    continue
                due_s = self._now + self._interval_s
            for host, rows in sorted((await self._by_leader()).items()):
                await self._exchange(host, rows)
            await asyncio.sleep(self.world.random.uniform(0.02, 0.2))

    async def _end(self) -> None:
        """Leave, close without a word, or vanish: then its connections stay open."""
        how = self.world.random.choice(("leaves", "closes", "vanishes"))
        self.world.note(f"{self.told} {how}")
        self.ledger.count(how)
        if how == "leaves":
            for host, session in sorted(self._sessions.items()):
                await self._acknowledge(host, session, FINAL_EPOCH)
            await self._once(self._heartbeat_request(LEAVE_EPOCH))
        if how != "vanishes":
            for connection in self._connections.values():
                connection.close()
        self._connections.clear()
        self._sessions.clear()
        self.owned = set()

    # -- heartbeats

    def _heartbeat_request(self, epoch: int) -> k76.ShareGroupHeartbeatRequest:
        return k76.ShareGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self.told,
            member_epoch=epoch,
            subscribed_topic_names=(SHARED,) if epoch == 0 else None,
        )

    async def _heartbeat(self) -> bool:
        sent_s = self._now
        reply = await self._once(self._heartbeat_request(self._epoch))
        if reply is None:
            self._is_in_vain = True
            return False
        code = ErrorCode(reply.error_code)
        if code in FENCED:
            silent_s = self._now - self._answered_s
            is_due = silent_s >= self.world.plan.session_s
            if self._epoch and not (is_due or self._is_in_vain):
                raise ViolationError(
                    "NobodyIsFencedWithoutReason",
                    f"{self.told}: {code.name}, {silent_s:.3f} s after an answer",
                )
            self.ledger.count("fenced")
            self._epoch, self.owned = 0, set()
            return False
        if code is not ErrorCode.NONE:
            raise ViolationError("NothingUnforeseen", f"{self.told}: heartbeat got {code.name}")
        if reply.member_epoch < self._epoch:
            raise ViolationError("MemberEpochRises", f"{self.told}: {reply.member_epoch}")
        self._epoch, self._answered_s, self._is_in_vain = reply.member_epoch, sent_s, False
        self._interval_s = reply.heartbeat_interval_ms / 1000
        if reply.assignment is not None:
            rows = reply.assignment.topic_partitions
            self.owned = {(row.topic_id, index) for row in rows for index in row.partitions}
        return True

    async def _once(
        self, request: k76.ShareGroupHeartbeatRequest
    ) -> k76.ShareGroupHeartbeatResponse | None:
        """Ask the coordinator once; None without an answer that counts."""
        key = (GROUP, GROUP_ID)
        host = self._coordinators.get(key) or await self.find_coordinator(key)
        if host is None:
            await self.pause()
            return None
        try:
            found = await self.ask(host, request, k76.ShareGroupHeartbeatResponse, 1)
        except LOST:
            self._coordinators.pop(key, None)
            return None
        code = ErrorCode(found.error_code)
        if code in MOVED or code in RETRIED or code is ErrorCode.REQUEST_TIMED_OUT:
            self._coordinators.pop(key, None)
            return None
        return found

    # -- records

    async def _by_leader(self) -> dict[str, list[tuple[UUID, int]]]:
        """The assigned partitions by the broker that is thought to lead them."""
        found: dict[str, list[tuple[UUID, int]]] = {}
        for topic_id, index in sorted(self.owned):
            host = self._leaders.get(index) or await self.leader(SHARED, index)
            if host is not None:
                self._leaders[index] = host
                found.setdefault(host, []).append((topic_id, index))
        return found

    async def _exchange(self, host: str, rows: list[tuple[UUID, int]]) -> None:
        """Acknowledge what is due, and fetch."""
        session = self._sessions.setdefault(host, Session())
        if session.epoch and self.world.random.random() < 0.5:
            await self._acknowledge(host, session, session.epoch)
        await self._fetch(host, session, rows)

    def _due(self, session: Session) -> list[Held]:
        """What is acknowledged now: once, since without an answer nobody knows."""
        due = session.due(self._now)
        for held in due:
            for at, kind in held.each():
                self.ledger.sent(at, kind)
            if held.renewed:
                due_s = self._now + 0.6 * LOCK_S
                session.held.append(replace(held, due_s=due_s, renewed=held.renewed - 1))
        return due

    async def _acknowledge(self, host: str, session: Session, epoch: int) -> None:
        """ShareAcknowledge of what is due."""
        due = self._due(session)
        if not due and epoch != FINAL_EPOCH:
            return
        topics = tuple(
            k79.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=tuple(
                    k79.AcknowledgePartition(partition_index=index, acknowledgement_batches=rows)
                    for index in sorted({held.index for held in due})
                    if (rows := _batches(k79.AcknowledgementBatch, due, index))
                ),
            )
            for topic_id in self._topic_ids()
        )
        request = k79.ShareAcknowledgeRequest(
            group_id=GROUP_ID,
            member_id=self.told,
            share_session_epoch=epoch,
            is_renew_ack=any(held.renewed for held in due),
            topics=topics if due else (),
        )
        try:
            reply = await self.ask(host, request, k79.ShareAcknowledgeResponse, 2)
        except LOST:
            session.epoch = 0
            return
        if self._goes_on(session, reply.error_code):
            codes = {p.partition_index: p.error_code for t in reply.responses for p in t.partitions}
            self._acknowledged(due, codes)

    def _topic_ids(self) -> list[UUID]:
        assignment = self.world.assignment(SHARED)
        assert assignment is not None and assignment.topic_id is not None
        return [assignment.topic_id]

    async def _fetch(self, host: str, session: Session, rows: list[tuple[UUID, int]]) -> None:
        due = self._due(session) if session.epoch else []
        renews = any(held.renewed for held in due)
        topics = tuple(
            k78.FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    k78.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=_batches(k78.AcknowledgementBatch, due, index),
                    )
                    for index in sorted({i for _, i in rows} | {held.index for held in due})
                ),
            )
            for topic_id in self._topic_ids()
        )
        request = k78.ShareFetchRequest(
            group_id=GROUP_ID,
            member_id=self.told,
            share_session_epoch=session.epoch,
            max_wait_ms=0 if renews else self.world.random.choice((0, 100, 300)),
            min_bytes=0 if renews else 1,
            max_bytes=0 if renews else 65_536,
            max_records=0 if renews else self.world.random.choice((1, 10, 100, 500)),
            batch_size=100,
            share_acquire_mode=self.world.random.choice((0, 1)),
            is_renew_ack=renews,
            topics=topics,
        )
        sent_s = self._now
        epochs = {index: self._epoch_led(host, index) for _, index in rows}
        try:
            reply = await self.ask(host, request, k78.ShareFetchResponse, 2)
        except LOST:
            for _, index in rows:
                self._leaders.pop(index, None)
                self.ledger.fetch_lost(index, self._now)
            session.epoch = 0
            return
        if not self._goes_on(session, reply.error_code):
            return
        found = [row for topic in reply.responses for row in topic.partitions]
        self._acknowledged(due, {row.partition_index: row.acknowledge_error_code for row in found})
        for row in found:
            epoch = epochs.get(row.partition_index)
            by_leader = epoch is not None and epoch == self._epoch_led(host, row.partition_index)
            self._given(session, row, sent_s, by_leader=by_leader)

    def _epoch_led(self, host: str, index: int) -> int | None:
        """The leader epoch, if this broker leads the partition and all know it."""
        broker = self.world.brokers[int(host[1:]) - 1]
        state = self.world.partition_state(znodes.state_path(SHARED, index))
        if broker.node is None or state is None or state[0].leader != broker.id:
            return None
        partition = broker.node.replicas.partitions.get((SHARED, index))
        if partition is None or not partition.is_leader:
            return None
        return partition.leader_epoch if partition.leader_epoch == state[0].leader_epoch else None

    def _goes_on(self, session: Session, error_code: int) -> bool:
        """Whether the request was applied: the session's next epoch follows."""
        code = ErrorCode(error_code)
        if code is ErrorCode.NONE:
            session.epoch += 1
            return True
        if code not in SESSION_OVER and not code.retriable and code not in REFUSED:
            raise ViolationError("NothingUnforeseen", f"{self.told}: a share request: {code.name}")
        self.ledger.count(code.name)
        session.epoch = 0
        return False

    def _acknowledged(self, due: list[Held], codes: dict[int, int]) -> None:
        for held in due:
            code = codes.get(held.index)
            if code == ErrorCode.NONE:
                for at, kind in held.each():
                    self.ledger.confirmed(at, kind, held.count, self._now, self.told)
            elif code is not None:
                self._refused(held.index, ErrorCode(code))

    def _refused(self, index: int, code: ErrorCode) -> None:
        if not code.retriable and code not in REFUSED:
            raise ViolationError("NothingUnforeseen", f"{self.told}: {index}: {code.name}")
        self.ledger.count(code.name)
        if code is not ErrorCode.INVALID_RECORD_STATE:
            self._leaders.pop(index, None)

    def _given(
        self, session: Session, row: k78.PartitionData, sent_s: float, *, by_leader: bool
    ) -> None:
        index = row.partition_index
        if row.error_code:
            self._refused(index, ErrorCode(row.error_code))
            return
        values = {r.offset: r.value or b"" for r in read_records(bytes(row.records))}
        for first, last, count in (
            (r.first_offset, r.last_offset, r.delivery_count) for r in row.acquired_records
        ):
            for offset in range(first, last + 1):
                if offset not in values:
                    raise ViolationError(
                        "NothingUnforeseen", f"{self.told}: {index}: no record at {offset}"
                    )
                self.ledger.delivered(
                    (index, offset), count, sent_s, self.told, by_leader=by_leader
                )
                self.world.read(SHARED, index, offset, values[offset])
            self._decide(session, index, first, last, count)

    def _decide(self, session: Session, index: int, first: int, last: int, count: int) -> None:
        """What becomes of these records."""
        random = self.world.random
        fate = "accept" if self.world.is_healing else random.choices(FATES, WEIGHTS)[0]
        types: tuple[int, ...] = ({"release": RELEASE, "reject": REJECT}.get(fate, ACCEPT),)
        if fate == "mixed":
            types = tuple(random.choice((ACCEPT, RELEASE, REJECT)) for _ in range(first, last + 1))
        delay_s = 0.0
        if fate == "late":
            delay_s = random.uniform(0.7, 2.0) * LOCK_S
        elif fate == "renew":
            delay_s = random.uniform(0.2, 0.8) * LOCK_S
        if fate != "forget":
            held = Held(
                index=index, first=first, last=last, count=count, types=types,
                due_s=self._now + delay_s, renewed=random.randint(1, 2) if fate == "renew" else 0,
            )  # fmt: skip
            session.held.append(held)


def _batches(kind: Callable[..., B], due: list[Held], index: int) -> tuple[B, ...]:
    """The acknowledgements of one partition."""
    return tuple(
        kind(first_offset=h.first, last_offset=h.last, acknowledge_types=h.sent_types)
        for h in due
        if h.index == index
    )
