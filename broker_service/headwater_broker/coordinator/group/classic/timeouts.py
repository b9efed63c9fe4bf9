"""Timeouts of classic groups: a session ends, a rebalance or a SyncGroup is waited for. Pure."""

from __future__ import annotations

from headwater_broker.coordinator.common.deadlines import Deadlines
from headwater_broker.coordinator.common.shard import Decision, Now
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.rebalance import ClassicProtocol
from headwater_broker.coordinator.group.classic.states import GroupState
from headwater_broker.coordinator.group.timer_keys import RETRY_MS, Timer, TimerKey

_S = GroupState


class ClassicTimeouts:
    """The consequences of a deadline of a group or of a member."""

    def __init__(self, protocol: ClassicProtocol, deadlines: Deadlines[TimerKey]) -> None:
        self._protocol = protocol
        self._deadlines = deadlines

    def due(self, group: Group, key: TimerKey, now: Now, out: Decision) -> None:
        """One deadline has passed."""
        if key.kind is Timer.SESSION:
            self._session_due(group, key.member_id, now, out)
        elif key.kind is Timer.PENDING:
            self._pending_due(group, key.member_id, now, out)
        elif key.kind is Timer.REBALANCE and not key.member_id:
            self._rebalance_due(group, now, out)
        elif key.kind is Timer.SYNC and not key.member_id:
            self._sync_due(group, now, out)
        elif key.kind is Timer.CONVERTED and group.is_in(_S.STABLE):
            self._protocol.restart_sessions(group, now)
            self._protocol.rebalance(group, now, out)

    def _session_due(self, group: Group, member_id: str, now: Now, out: Decision) -> None:
        """The session of a member has expired: it leaves, and its group rebalances (`rebalance`).

        A member whose request waits here is alive.
        """
        member = group.members.get(member_id)
        is_renewed = self._deadlines.is_set(TimerKey(Timer.SESSION, group.group_id, member_id))
        if member is None or is_renewed:  # renewed by another deadline of the same tick
            return
        is_waiting = member.join is not None or member.sync is not None
        if is_waiting and not member.is_new:
            self._protocol.renew_session(group, member, now)
            return
        self._protocol.remove_member(group, member_id, now, out)

    def _pending_due(self, group: Group, member_id: str, now: Now, out: Decision) -> None:
        """An assigned member id was not used in time."""
        if member_id in group.pending_members:
            group.pending_members.discard(member_id)
            self._protocol.try_complete(group, now, out)

    def _rebalance_due(self, group: Group, now: Now, out: Decision) -> None:
        """The rebalance timeout is over: go on with the members that have joined."""
        if not group.is_in(_S.PREPARING):
            return
        if self._protocol.extend_initial_delay(group, now):
            return
        for member in [m for m in group.members.values() if m.join is None]:
            if member.instance_id is None:
                self._protocol.drop_member(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has rejoined yet: their sessions decide.
            key = TimerKey(Timer.REBALANCE, group.group_id)
            self._deadlines.set(key, now.steady_ms + max(group.rebalance_timeout_ms, RETRY_MS))
            return
        self._protocol.complete(group, now, out)

    def _sync_due(self, group: Group, now: Now, out: Decision) -> None:
        """Remove members that joined the generation and did not sync: partitions are assigned to
        them that they may not know of."""
        if not group.pending_sync or not group.is_in(_S.COMPLETING, _S.STABLE):
            return
        for member_id in list(group.pending_sync):
            self._protocol.drop_member(group, member_id)
        self._protocol.rebalance(group, now, out)
