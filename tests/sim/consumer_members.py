"""Members of one consumer group (KIP-848), as a client that follows the protocol to the letter.

Each has lives: it joins, heartbeats, gives up what it is told to before it says so, commits offsets
of what it owns, and leaves or dies. Some have an instance id. After healing they stay.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING

from headwater.errors import ErrorCode
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k68_consumer_group_heartbeat as k68
from headwater.wire.schema import Message
from sim.clients import CALL_TIMEOUT_S, LOST, RETRIED, R
from sim.group_ledger import Owned, check_offset
from sim.invariants import ViolationError
from sim.plan import GROUPED
from sim.transaction_clients import GROUP, CoordinatorClient

if TYPE_CHECKING:
    from sim.world import World

GROUP_ID = "members"
REBALANCE_TIMEOUT_MS = 60_000
LIFE_S = (1.0, 12.0)
DEAD_S = (0.0, 3.0)
DIES = 0.4
COMMITS = 0.6
LEAVES = -1
LEAVES_FOR_A_WHILE = -2
OFFSET_VERSION = 9
MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
     ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)  # fmt: skip
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
STALE = FENCED | {ErrorCode.STALE_MEMBER_EPOCH}


class GroupMember(CoordinatorClient):
    """One application: one member after the other."""

    topic = GROUPED

    def __init__(self, world: World, number: int, instance_id: str | None) -> None:
        super().__init__(world, f"member.{number}")
        self.instance_id = instance_id
        self.ledger = world.groups
        self.ledger.members.append(self)
        self.owned: set[Owned] = set()
        self.answered_s = -1e9
        """When the last heartbeat that was answered was sent."""
        self.epoch = 0
        self._lives = 0
        self._is_joined = False
        self._is_in_vain = False
        """Whether a heartbeat since then has no answer: it may have changed the epoch."""
        self._must_tell = True
        self.positions: dict[Owned, int] = {}
        self._interval_s = 0.1

    @property
    def told(self) -> str:
        """Its name for messages."""
        return f"{self.name}.{self._lives} at epoch {self.epoch}"

    def is_alive_at(self, now_s: float, session_s: float) -> bool:
        """Whether its session cannot have ended."""
        return now_s < self.answered_s + session_s

    # -- lives

    async def work(self) -> None:
        random = self.world.random
        while not self.world.is_over:
            self._lives += 1
            self.epoch, self._is_in_vain, self._is_joined = 0, False, False
            ends_s = self._now + random.uniform(*LIFE_S)
            await self._live(ends_s)
            if self.world.is_over:
                return
            if random.random() < DIES:
                self.ledger.count("died")
                self.world.note(f"{self.told} dies")
                self._lose_all()
                self._dies()
            else:
                self._lose_all()
                await self._leave()
            await asyncio.sleep(random.uniform(*DEAD_S))

    def _dies(self) -> None:
        """What a dead member's successor does not know of it."""

    @property
    def _now(self) -> float:
        return self.world.scheduler.now

    async def _live(self, ends_s: float) -> None:
        """Until the end of this life, which does not come after healing."""
        due_s = self._now
        while not self.world.is_over and (self._now < ends_s or self.world.is_healing):
            if self._now >= due_s or self._must_tell:
                if not await self.heartbeat():
                    await self.pause()
                    continue
                due_s = self._now + self._interval_s
            for partition in sorted(self.owned):
                if partition not in self.positions:
                    await self.load(partition)
                elif self.world.random.random() < COMMITS and not self.world.is_healing:
                    await self.commit(partition)
                elif self.world.is_healing and partition not in self.ledger.verified:
                    del self.positions[partition]
            await asyncio.sleep(self.world.random.uniform(0.02, 0.3))

    async def _leave(self) -> None:
        static = self.instance_id is not None and self.world.random.random() < 0.7
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self._member_id,
            instance_id=self.instance_id,
            member_epoch=LEAVES_FOR_A_WHILE if static else LEAVES,
        )
        reply = await self._once(request, k68.ConsumerGroupHeartbeatResponse, 1)
        self.world.note(f"{self.told} leaves ({request.member_epoch}): {reply}")
        self.ledger.count("left" if reply is not None else "left in vain")

    def _lose_all(self) -> None:
        for partition in self.owned:
            self.ledger.given_up(partition, self)
        self.owned.clear()
        self.positions.clear()

    # -- heartbeats

    @property
    def _member_id(self) -> str:
        return f"{self.name}.{self._lives}"

    async def heartbeat(self) -> bool:
        """One heartbeat; whether it was answered."""
        is_full = self.epoch == 0 or self._is_in_vain
        tells = is_full or self._must_tell
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self._member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=(self.topic,) if is_full else None,
            topic_partitions=self._told_owned() if tells else None,
        )
        sent_s = self._now
        reply = await self._once(request, k68.ConsumerGroupHeartbeatResponse, 1)
        if reply is None:
            self._is_in_vain = True
            return False
        code = ErrorCode(reply.error_code)
        if code is ErrorCode.NONE:
            self._answered(reply, sent_s)
            return True
        if code in FENCED:
            self._fenced(code)
        elif code is not ErrorCode.UNRELEASED_INSTANCE_ID:
            raise ViolationError("NothingUnforeseen", f"{self.told}: heartbeat got {code.name}")
        return False

    def _told_owned(self) -> tuple[k68.TopicPartitions, ...]:
        rows = groupby(sorted(self.owned), key=lambda owned: owned[0])
        return tuple(
            k68.TopicPartitions(topic_id=topic, partitions=tuple(index for _, index in found))
            for topic, found in rows
        )

    def _answered(self, reply: k68.ConsumerGroupHeartbeatResponse, sent_s: float) -> None:
        if reply.member_epoch < self.epoch:
            raise ViolationError(
                "MemberEpochRises", f"{self.told}: its epoch is {reply.member_epoch} now"
            )
        if not self._is_joined:
            self.ledger.count("joined")
        self._is_joined, self._is_in_vain, self._must_tell = True, False, False
        self.epoch, self.answered_s = reply.member_epoch, sent_s
        self._interval_s = reply.heartbeat_interval_ms / 1000
        if reply.assignment is None:
            return
        target = {
            (row.topic_id, index)
            for row in reply.assignment.topic_partitions
            for index in row.partitions
        }
        for partition in sorted(self.owned - target):
            self.ledger.given_up(partition, self)
            self.positions.pop(partition, None)
        for partition in sorted(target - self.owned):
            self.ledger.taken(partition, self, self._now)
        self._must_tell = target != self.owned
        self.owned = target
        self.world.note(f"{self.told} owns {sorted(index for _, index in target)}")

    def _fenced(self, code: ErrorCode) -> None:
        """Raises ViolationError if its session cannot have ended and nothing was in vain."""
        expired = not self.is_alive_at(self._now, self.world.plan.session_s)
        if self.epoch and not expired and not self._is_in_vain:
            raise ViolationError(
                "NobodyIsFencedWithoutReason",
                f"{self.told}: {code.name}, {self._now - self.answered_s:.3f} s after an answer",
            )
        self.ledger.count("fenced")
        self.world.note(f"{self.told} is fenced: {code.name}")
        self._lose_all()
        self.epoch, self._is_in_vain, self._must_tell = 0, False, True

    # -- offsets

    @property
    def _reader(self) -> tuple[str | None, int]:
        """Who asks for committed offsets."""
        return self._member_id, self.epoch

    async def load(self, partition: Owned) -> None:
        """Read the committed offset. Raises ViolationError when it is not the last one."""
        topic = k09.OffsetFetchRequestTopics(name=self.topic, partition_indexes=(partition[1],))
        member_id, epoch = self._reader
        group = k09.OffsetFetchRequestGroup(
            group_id=GROUP_ID, member_id=member_id, member_epoch=epoch, topics=(topic,)
        )
        request = k09.OffsetFetchRequest(groups=(group,), require_stable=True)
        known = self.ledger.known(partition)
        reply = await self._once(request, k09.OffsetFetchResponse, OFFSET_VERSION)
        if reply is None:
            return
        found = reply.groups[0]
        code = ErrorCode(found.error_code or found.topics[0].partitions[0].error_code)
        if self._is_settled_code(code, "OffsetFetch"):
            offset = found.topics[0].partitions[0].committed_offset
            check_offset(partition, offset, known, self.told)
            if self.world.is_healing:
                self.ledger.verified.add(partition)
            if partition in self.owned:
                self.positions[partition] = max(offset, 0)

    async def commit(self, partition: Owned) -> None:
        """Commit the next offset."""
        offset = self.positions[partition] + 1
        row = k08.OffsetCommitRequestPartition(
            partition_index=partition[1], committed_offset=offset, committed_metadata=""
        )
        request = k08.OffsetCommitRequest(
            group_id=GROUP_ID,
            generation_id_or_member_epoch=self.epoch,
            member_id=self._member_id,
            group_instance_id=self.instance_id,
            topics=(k08.OffsetCommitRequestTopic(name=self.topic, partitions=(row,)),),
        )
        reply = await self._once(request, k08.OffsetCommitResponse, OFFSET_VERSION)
        if partition in self.positions:
            self.positions[partition] = offset  # whether it was served or not
        if reply is None:
            return
        code = ErrorCode(reply.topics[0].partitions[0].error_code)
        if self._is_settled_code(code, "OffsetCommit"):
            self.ledger.committed(partition, offset)

    def _is_settled_code(self, code: ErrorCode, request: str) -> bool:
        """True for success. Raises ViolationError for an error that has no reason."""
        if code in STALE:
            self.ledger.count(f"{code.name} of {request}")
            self._must_tell = True
        elif code is not ErrorCode.NONE:
            raise ViolationError("NothingUnforeseen", f"{self.told}: {request} got {code.name}")
        return code is ErrorCode.NONE

    # -- calls

    async def _once(
        self, request: Message, reply: type[R], version: int, timeout_s: float = CALL_TIMEOUT_S
    ) -> R | None:
        """Ask the coordinator once; None without an answer that counts."""
        key = (GROUP, GROUP_ID)
        host = self._coordinators.get(key) or await self.find_coordinator(key)
        if host is None:
            await self.pause()
            return None
        try:
            found = await self.ask(host, request, reply, version, timeout_s)
        except LOST:
            self._coordinators.pop(key, None)
            return None
        code = _code_of(found)
        if code in MOVED or code in RETRIED or code is ErrorCode.REQUEST_TIMED_OUT:
            self._coordinators.pop(key, None)
            return None
        return found


def _code_of(reply: Message) -> ErrorCode:
    if isinstance(reply, k08.OffsetCommitResponse):
        return ErrorCode(reply.topics[0].partitions[0].error_code)
    if isinstance(reply, k09.OffsetFetchResponse):
        row = reply.groups[0]
        return ErrorCode(row.error_code or row.topics[0].partitions[0].error_code)
    code: int = getattr(reply, "error_code")  # noqa: B009 - of each reply but those
    return ErrorCode(code)


def unsettled(world: World) -> str:
    """What the group has not settled; empty without a group."""
    if not world.plan.members:
        return ""
    assignment = world.assignment(GROUPED)
    assert assignment is not None and assignment.topic_id is not None
    return world.groups.unsettled({(assignment.topic_id, i) for i in assignment.partitions})
