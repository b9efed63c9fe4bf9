"""Timeouts of consumer groups' members: sessions, and the time to give partitions up. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.member import ConsumerMember
from headwater_broker.coordinator.group.consumer.states import MemberState
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import Timer, TimerKey

FENCED_BY = {
    Timer.SESSION: "session",
    Timer.REBALANCE: "rebalance",
    Timer.JOIN: "rebalance",
    Timer.SYNC: "rebalance",
}


class ConsumerTimeouts:
    """Sets the members' deadlines, and says who is fenced when one has passed."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def renew_session(self, group_id: str, member: ConsumerMember, now: Now) -> None:
        """The member is alive: its session starts again, at the request and not at its reply."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._table.settings_of(group_id).consumer_session_timeout_ms
        key = TimerKey(Timer.SESSION, group_id, member.member_id)
        self._table.deadlines.set(key, now.steady_ms + timeout_ms)

    def watch_revocation(
        self, group_id: str, member: ConsumerMember, now: Now, *, anew: bool = False
    ) -> None:
        """A member that is to give partitions up has its rebalance timeout for it."""
        key = TimerKey(Timer.REBALANCE, group_id, member.member_id)
        deadlines = self._table.deadlines
        if member.state is not MemberState.UNREVOKED or member.classic is not None:
            deadlines.cancel(key)
        elif anew or not deadlines.is_set(key):
            deadlines.set(key, now.steady_ms + max(member.rebalance_timeout_ms, 0))

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """The member is gone, or has another id now."""
        for kind in (Timer.SESSION, Timer.REBALANCE, Timer.JOIN, Timer.SYNC):
            self._table.deadlines.cancel(TimerKey(kind, group_id, member_id))

    def fenced(self, group: ConsumerGroup, keys: Iterable[TimerKey]) -> dict[str, str]:
        """The members whose deadlines have passed, each with what ended: session or rebalance."""
        found: dict[str, str] = {}
        for key in keys:
            if self._is_over(group, key):
                found.setdefault(key.member_id, FENCED_BY[key.kind])
        return found

    def _is_over(self, group: ConsumerGroup, key: TimerKey) -> bool:
        """True when the member is put out: its session or its time to give partitions up ended."""
        member = group.members.get(key.member_id)
        if member is None or self._table.deadlines.is_set(key):
            return False
        if key.kind is Timer.REBALANCE:
            return member.state is MemberState.UNREVOKED
        is_classic = member.classic is not None
        return key.kind is Timer.SESSION or (is_classic and key.kind in (Timer.JOIN, Timer.SYNC))
