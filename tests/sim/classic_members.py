"""Members of one group in the classic protocol, with the SDK's assignors and its pure member.

The leader of each generation assigns, whichever member that is. An eager member gives everything up
before it joins; a cooperative one keeps what it has, and joins again once it has given up what its
assignment lacks. Lives, offsets and the ledger are those of the members of `consumer_members`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from headwater.client.core.assignors import ASSIGNORS
from headwater.client.core.classic_group import ClassicMember, NextAction, decode_assignment
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode
from headwater.wire.apis import k11_join_group as k11
from headwater.wire.apis import k12_heartbeat as k12
from headwater.wire.apis import k13_leave_group as k13
from headwater.wire.apis import k14_sync_group as k14
from sim.clients import Client
from sim.consumer_members import GROUP_ID, STALE, GroupMember
from sim.invariants import ViolationError
from sim.plan import SESSION_MS

if TYPE_CHECKING:
    from sim.world import World

REBALANCE_MS = SESSION_MS + 2_000
"""Longer than a session: who is removed for its silence has lost its session, too."""
JOIN_S = REBALANCE_MS / 1000 + 5
INTERVAL_S = 0.5
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
MISSED = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}) | STALE


class ClassicGroupMember(GroupMember):
    """One application: one member after the other."""

    def __init__(self, world: World, number: int, instance_id: str | None) -> None:
        super().__init__(world, number, instance_id)
        self._interval_s = INTERVAL_S
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._member = ClassicMember(
            GROUP_ID,
            (ASSIGNORS[self.world.plan.assignor],),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            group_instance_id=self.instance_id,
        )
        self.epoch = 0
        self._must_tell = True

    @property
    def _member_id(self) -> str:
        return self._member.member_id

    @property
    def _reader(self) -> tuple[str | None, int]:
        return None, -1

    async def _leave(self) -> None:
        """A static member says nothing: it comes back."""
        reply = None
        if self.instance_id is None and self._member_id:
            request = self._member.leave_request("")
            reply = await self._once(request, k13.LeaveGroupResponse, LEAVE_VERSION)
        self.ledger.count("left" if reply is not None else "left in vain")
        self._begin_anew()

    def _dies(self) -> None:
        self._begin_anew()

    async def heartbeat(self) -> bool:
        """Join, or one heartbeat; whether it was answered."""
        if self._must_tell:
            return await self._join()
        sent_s = self._now
        request = self._member.heartbeat_request()
        reply = await self._once(request, k12.HeartbeatResponse, HEARTBEAT_VERSION)
        if reply is None:
            return False
        action = self._member.on_heartbeat(reply.error_code)
        if action is NextAction.STABLE:
            self.answered_s, self._is_in_vain = sent_s, False
            return True
        self._refused(action, ErrorCode(reply.error_code))
        return False

    async def _join(self) -> bool:
        member, topic_id = self._member, self._topic_id
        if not member.is_cooperative:
            self._lose_all()
        owned = [TopicPartition(self.topic, index) for _, index in sorted(self.owned)]
        sent_s = self._now
        asked = member.join_request([self.topic], owned)
        joined = await self._once(asked, k11.JoinGroupResponse, JOIN_VERSION, JOIN_S)
        if joined is None:
            self._is_in_vain = True
            return False
        action = member.on_join(joined)
        if action is not NextAction.SYNC:
            self._refused(action, ErrorCode(joined.error_code))
            return False
        count = len(self._partitions)
        request = member.sync_request({self.topic: count})
        synced = await self._once(request, k14.SyncGroupResponse, SYNC_VERSION, JOIN_S)
        if synced is None:
            self._is_in_vain = True
            return False
        action = member.on_sync(synced)
        if action is not NextAction.STABLE:
            self._refused(action, ErrorCode(synced.error_code))
            return False
        found = decode_assignment(synced.assignment)
        self._take({(topic_id, place.partition) for place in found}, sent_s)
        return True

    @property
    def _partitions(self) -> tuple[int, ...]:
        assignment = self.world.assignment(self.topic)
        assert assignment is not None
        return tuple(assignment.partitions)

    @property
    def _topic_id(self) -> UUID:
        assignment = self.world.assignment(self.topic)
        assert assignment is not None and assignment.topic_id is not None
        return assignment.topic_id

    def _take(self, target: set[tuple[UUID, int]], sent_s: float) -> None:
        self.ledger.count("joined")
        self.epoch, self.answered_s, self._is_in_vain = self._member.generation, sent_s, False
        revoked = self.owned - target
        for partition in sorted(revoked):
            self.ledger.given_up(partition, self)
            self.positions.pop(partition, None)
        for partition in sorted(target - self.owned):
            self.ledger.taken(partition, self, self._now)
        self.owned = target
        self._must_tell = bool(revoked)
        self.world.note(f"{self.told} owns {sorted(index for _, index in target)}")

    def _refused(self, action: NextAction, code: ErrorCode) -> None:
        """Raises ViolationError for an error that has no reason."""
        if action is not NextAction.JOIN_AGAIN:
            raise ViolationError("NothingUnforeseen", f"{self.told}: it got {code.name}")
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._fenced(code)
        self._must_tell = True

    def _is_settled_code(self, code: ErrorCode, request: str) -> bool:
        if code in MISSED:
            self.ledger.count(f"{code.name} of {request}")
            return False
        return super()._is_settled_code(code, request)


def group_members(world: World) -> list[Client]:
    """The members of the plan's group; the first of them has an instance id."""
    kind = ClassicGroupMember if world.plan.assignor else GroupMember
    return [
        kind(world, number, f"instance-{number}" if number == 0 else None)
        for number in range(world.plan.members)
    ]
