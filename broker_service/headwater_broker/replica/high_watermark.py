"""The high watermark: the lowest log end offset of the maximal ISR. Pure.

`leader_state` tells which followers are joining the ISR.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.replica.isr import FollowerProgress


def leader_high_watermark(
    current: int, leader_end: int, counted: Iterable[FollowerProgress]
) -> int:
    """The high watermark after a fetch, an append or an ISR change; it never decreases.

    `counted`: the followers of the maximal ISR and those about to join it. A follower that has not
    fetched in this epoch (log end -1) keeps the high watermark where it is.
    """
    lowest = leader_end
    for follower in counted:
        if follower.log_end_offset < lowest:
            lowest = follower.log_end_offset
    return lowest if lowest > current else current


def follower_high_watermark(current: int, leader_mark: int, own_end: int) -> int:
    """A follower's high watermark: the leader's, but not beyond the follower's log end.

    It never decreases while the log only grows: a new leader's high watermark may lag behind.
    """
    mark = min(leader_mark, own_end)
    return mark if mark > current else current


def loaded_high_watermark(checkpoint: int, log_start: int, log_end: int) -> int:
    """The high watermark of a replica whose log was just opened."""
    return max(log_start, min(checkpoint, log_end))
