"""The offsets of a group that are written to the target; `offset_translation` gives them. Pure.

The target's offset is only changed while it is the mirror's: absent, or what the mirror wrote. One
that a consumer of the target or an operator committed stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.mirror.core.state import GroupOffset

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Translate = Callable[[TopicPartition, int], int | None]


class GroupPlan(NamedTuple):
    """What to do for one group."""

    known: dict[TopicPartition, GroupOffset]
    """To be stored before anything is written."""
    writes: dict[TopicPartition, OffsetAndMetadata]
    foreign: list[TopicPartition]
    """Partitions whose offset in the target is not the mirror's."""


def plan(
    source: Offsets,
    target: Offsets,
    known: Mapping[TopicPartition, GroupOffset],
    translate: Translate,
    *,
    is_empty: bool,
    era: int = 0,
) -> GroupPlan:
    """The plan for a group with these offsets in the source, and those in the target.

    `known` is what the mirror stored before; `is_empty` False: the target's group has members, and
    nothing is written. `era`: the failover after which the mirror runs. What the target has of a
    group from before it is taken over once: the group went on in the source since.
    """
    made = GroupPlan(dict(known), {}, [])
    for tp, at in source.items():
        before = known.get(tp)
        now = target.get(tp)
        if before is not None and before.era != era:
            before = None
        ours = {before.target, before.before} if before is not None else set()
        is_taken_over = before is None and era > 0
        is_ours = now is None or now.offset in ours or is_taken_over
        offset = translate(tp, at.offset)
        if not is_ours:
            made.foreign.append(tp)
        if offset is None or not is_ours or not is_empty:
            if before is None and is_taken_over and now is not None:
                made.known[tp] = GroupOffset(at.offset, now.offset, -1, at.metadata, era)
            elif before is None or before.source != at.offset:
                kept = (-1, -1) if before is None else (before.target, before.before)
                made.known[tp] = GroupOffset(at.offset, *kept, at.metadata, era)
            continue
        wanted = OffsetAndMetadata(offset, at.metadata)
        if now is None or now[:2] != wanted[:2]:
            made.writes[tp] = wanted
        made.known[tp] = GroupOffset(
            at.offset, offset, -1 if now is None else now.offset, at.metadata, era
        )
    return made
