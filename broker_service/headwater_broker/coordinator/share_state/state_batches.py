"""Combines the delivery states of offset ranges (Kafka's `PersisterStateBatchCombiner`). Pure.

Where two ranges overlap, the higher delivery count holds, then the higher state: a delivery only
moves forward, so it does not matter in which order two writes arrive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from headwater_broker.replica.share.ports import UNKNOWN_START_OFFSET, StateBatch


def combined(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """The batches from `start_offset` on (-1: all), sorted, without overlaps, neighbours of one
    state as one."""
    kept = [_from(batch, start_offset) for batch in batches if batch.last_offset >= start_offset]
    kept.sort(key=_first)
    if all(before.last_offset < after.first_offset for before, after in pairwise(kept)):
        return _joined(kept)
    return _joined(_swept(kept))


def merge_into(held: list[StateBatch], new: Sequence[StateBatch], start_offset: int) -> None:
    """Merge `new` into `held`, which is as `combined` returns it. Only what `new` meets is
    combined again: a share partition holds up to thousands of batches, a write few."""
    if start_offset != UNKNOWN_START_OFFSET:
        _prune(held, start_offset)
    kept = [_from(batch, start_offset) for batch in new if batch.last_offset >= start_offset]
    if not kept:
        return
    first = min(map(_first, kept))
    last = max(map(_last, kept))
    low = bisect_left(held, first - 1, key=_last)  # a neighbour may be joined
    high = bisect_right(held, last + 1, key=_first)
    held[low:high] = combined((*held[low:high], *kept), UNKNOWN_START_OFFSET)


def _prune(held: list[StateBatch], start_offset: int) -> None:
    gone = bisect_left(held, start_offset, key=_last)
    del held[:gone]
    if held and held[0].first_offset < start_offset:
        held[0] = _from(held[0], start_offset)


def _first(batch: StateBatch) -> int:
    return batch.first_offset


def _last(batch: StateBatch) -> int:
    return batch.last_offset


def _from(batch: StateBatch, start_offset: int) -> StateBatch:
    if batch.first_offset >= start_offset:
        return batch
    return _part(batch, start_offset, batch.last_offset)


def _part(batch: StateBatch, first: int, last: int) -> StateBatch:
    return StateBatch(first, last, batch.delivery_state, batch.delivery_count)


def _swept(batches: list[StateBatch]) -> list[StateBatch]:
    """Ranges without overlaps out of sorted ones: at each offset the batch of the highest rank.

    `covering` holds the batches that begin at or before `at`, the highest rank first.
    """
    out: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []
    at, following = batches[0].first_offset, 0
    while covering or following < len(batches):
        if not covering:
            at = max(at, batches[following].first_offset)
        while following < len(batches) and batches[following].first_offset <= at:
            found = batches[following]
            heappush(covering, (-found.delivery_count, -found.delivery_state, following))
            following += 1
        top = batches[covering[0][2]]
        if top.last_offset < at:
            heappop(covering)
            continue
        end = top.last_offset
        if following < len(batches):  # one that begins inside may have a higher rank
            end = min(end, batches[following].first_offset - 1)
        out.append(_part(top, at, end))
        at = end + 1
    return out


def _joined(batches: list[StateBatch]) -> list[StateBatch]:
    out: list[StateBatch] = []
    for batch in batches:
        before = out[-1] if out else None
        if (
            before is not None
            and before.last_offset + 1 == batch.first_offset
            and before.delivery_state == batch.delivery_state
            and before.delivery_count == batch.delivery_count
        ):
            out[-1] = _part(before, before.first_offset, batch.last_offset)
        else:
            out.append(batch)
    return out
