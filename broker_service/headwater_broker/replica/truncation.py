"""Truncation of diverging logs by leader epochs, never by high watermark (KIP-101, KIP-279). Pure.

An *epoch end* (epoch, end offset): the records of `epoch` in a log end before `end_offset`.
(-1, -1): unknown.

`fetcher` asks when a leader answers that the logs diverge, and cuts the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """The largest epoch not above the requested one, and the offset where its records end."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class Truncation(NamedTuple):
    """Truncate the log to `offset`; unless `final`, fetch again from there."""

    offset: int
    final: bool


def divergence(leader: EpochEnd, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
    """The leader's side (KIP-595): the diverging epoch to answer a fetch with, or None.

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
    """The follower's side: where to truncate on the answer `diverging`.

    `own_epoch_end(epoch)` is the follower's epoch end. If the follower knows the leader's epoch,
    both logs agree up to the lower of the two ends. If not, its epoch below is the next candidate:
    truncate to its end and fetch again. A leader without any epoch cannot tell where the logs
    diverge: records below the high watermark are committed and kept (Kafka's rule for old logs).
    """
    if diverging.epoch == UNDEFINED_EPOCH or diverging.end_offset == UNDEFINED_OFFSET:
        return Truncation(min(high_watermark, own_end), True)
    own = own_epoch_end(diverging.epoch)
    if own.epoch == UNDEFINED_EPOCH:
        return Truncation(min(diverging.end_offset, own_end), True)
    cut = min(diverging.end_offset, own.end_offset, own_end)
    return Truncation(cut, own.epoch == diverging.epoch)
