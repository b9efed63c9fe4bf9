"""Sessions of share groups' members (share.session.timeout.ms). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.group.share.group import ShareGroup
from headwater_broker.coordinator.group.table import GroupTable
from headwater_broker.coordinator.group.timer_keys import RETRY_MS, Timer, TimerKey


class ShareTimeouts:
    """Sets the members' sessions, and says whose have ended."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    def renew_session(self, group_id: str, member_id: str, now: Now) -> None:
        """The member is alive."""
        timeout_ms = self._table.settings_of(group_id).share_session_timeout_ms
        key = TimerKey(Timer.SESSION, group_id, member_id)
        self._table.deadlines.set(key, now.steady_ms + timeout_ms)

    def ended(self, group: ShareGroup, keys: Iterable[TimerKey], now: Now) -> list[str]:
        """The members whose sessions have ended."""
        deadlines = self._table.deadlines
        gone = [
            key.member_id
            for key in keys
            if key.member_id in group.members and not deadlines.is_set(key)
        ]
        for member_id in gone:  # replay cancels it: if this is not appended, the session ends anew
            key = TimerKey(Timer.SESSION, group.group_id, member_id)
            deadlines.set(key, now.steady_ms + RETRY_MS)
        return gone
