"""Where two logs part: truncation by leader epochs, never by high watermark (KIP-101, KIP-279).

Pure. An *epoch end* (epoch, end offset) says: this log's records of `epoch` end before
`end_offset`. (-1, -1) is "unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and where its records end."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class Truncation(NamedTuple):
    """Cut the log to `offset`; when not `final`, ask again from there."""

    offset: int
    final: bool


def divergence(leader: EpochEnd, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """The leader's side (KIP-595): what a fetch must be told instead of records, or None.

    `leader` is the leader's epoch end for `last_fetched_epoch`. The fetcher's log diverges when
    the leader does not know that epoch, or its records end before `fetch_offset`.
    """
    if last_fetched_epoch == UNDEFINED_EPOCH:
        return None
    if leader.epoch < last_fetched_epoch or leader.end_offset < fetch_offset:
        return leader
    return None


def truncation(
    diverging: EpochEnd,
    own_end: int,
    high_watermark: int,
    own_epoch_end: Callable[[int], EpochEnd],
) -> Truncation:
    """The follower's side: where to cut after the leader told `diverging`.

    `own_epoch_end(epoch)` is the follower's epoch end for an epoch. If it knows the leader's
    epoch, both logs agree up to the lower of the two ends. If it does not, its epoch below is the
    next candidate: cut to there and ask again. A leader without any epoch can tell nothing: what
    is below the high watermark is committed, so that is kept (Kafka's fallback for old logs).
    """
    if diverging.epoch == UNDEFINED_EPOCH or diverging.end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, own_end), True)
    own = own_epoch_end(diverging.epoch)
    if own.epoch == UNDEFINED_EPOCH:
        return Truncation(min(diverging.end_offset, own_end), True)
    cut = min(diverging.end_offset, own.end_offset, own_end)
    return Truncation(cut, own.epoch == diverging.epoch)
