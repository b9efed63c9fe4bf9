"""Names of the deadlines of a group shard."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Timer(Enum):
    """Kinds of deadlines."""

    SESSION = "session"
    PENDING = "pending member id"
    REBALANCE = "rebalance"
    SYNC = "sync"
    EXPIRY = "offsets expiry"


class TimerKey(NamedTuple):
    """A deadline of a member, or of the group (`member_id` empty)."""

    kind: Timer
    group_id: str
    member_id: str = ""
