"""Names of the deadlines of a group shard."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

RETRY_MS = 500
"""A decision of a deadline whose records could not be appended is tried again after this."""


class Timer(Enum):
    """Kinds of deadlines."""

    SESSION = "session"
    PENDING = "pending member id"
    REBALANCE = "rebalance"
    SYNC = "sync"
    EXPIRY = "offsets expiry"
    JOIN = "a classic member of a consumer group is to join again"
    TARGET = "the target assignment of a consumer group"
    REGEX = "the patterns of a consumer group"
    CONVERTED = "a consumer group has become a classic one"


class TimerKey(NamedTuple):
    """A deadline of a member, or of the group (`member_id` empty). A member of a consumer group has
    its own REBALANCE (to give partitions up) and SYNC."""

    kind: Timer
    group_id: str
    member_id: str = ""
