"""The high watermark: what every member of the maximal ISR holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.replica.isr import FollowerProgress


def leader_high_watermark(
    current: int, leader_end: int, counted: Iterable[FollowerProgress]
) -> int:
    """The high watermark after a fetch, an append or an ISR change; it never goes backwards.

    `counted` are the followers of the maximal ISR and those about to join it. One that has not
    fetched in this epoch (end -1) holds it where it is.
    """
    lowest = leader_end
    for follower in counted:
        if follower.log_end_offset < lowest:
            lowest = follower.log_end_offset
    return lowest if lowest > current else current


def follower_high_watermark(current: int, leader_mark: int, own_end: int) -> int:
    """What a follower may call committed: the leader's mark, as far as its own log reaches.

    It never goes backwards while the log only grows: a new leader's mark may lag behind.
    """
    mark = min(leader_mark, own_end)
    return mark if mark > current else current


def loaded_high_watermark(checkpoint: int, log_start: int, log_end: int) -> int:
    """The high watermark of a replica that was just opened."""
    return max(log_start, min(checkpoint, log_end))
