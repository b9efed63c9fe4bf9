"""The offsets of a query's first micro-batch, of the next one, of one that is repeated. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater_spark.source.data_loss import (
    Reads,
    every_partition,
    gone_topics,
)
from headwater_spark.source.positions import CurrentOffsets, Offsets, PartitionId, Position


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The next micro-batch, None when there is nothing new, and data losses as sentences."""

    position: Position | None
    losses: tuple[str, ...] = ()


def plan_first_batch(starts: Offsets, current: CurrentOffsets) -> BatchPlan:
    """Batch 0, which pins the query's start. `starts` are resolved offsets."""
    losses = [
        f"{topic}-{partition}: starting offset {start} is outside the log"
        f" [{current.earliest[topic, partition]}, {current.latest[topic, partition]}]"
        for (topic, partition), start in sorted(starts.items())
        if not current.earliest[topic, partition] <= start <= current.latest[topic, partition]
    ]
    clamped = {
        tp: min(max(start, current.earliest[tp]), current.latest[tp])
        for tp, start in starts.items()
    }
    return BatchPlan(
        Position(clamped, dict(current.latest), dict(current.topic_ids)), tuple(losses)
    )


def plan_next_batch(
    previous: Position, current: CurrentOffsets, reads: Reads = every_partition
) -> BatchPlan:
    """The batch after `previous`, up to the newest offsets and without limits.

    A partition that is new to the query starts at its log start, and the batch pins that start even
    if the partition is empty. A topic with another id is another topic: its partitions start at
    their log start, and that counts as data loss.

    A partition that the brokers do not list keeps its position, so that it continues there if it
    was only missing from one broker's metadata, and a topic created again is known by its id.
    `reads` is false for partitions that the query's options no longer name: their position is
    dropped, which counts as data loss too.
    """
    losses = [f"topic {topic} is gone" for topic in gone_topics(previous, current, reads)]
    recreated = set()
    for topic, old in sorted(previous.topic_ids.items()):
        now = current.topic_ids.get(topic)
        if now not in (None, old):
            recreated.add(topic)
            losses.append(f"topic {topic} was deleted and created again (id {old}, now {now})")
    start: dict[PartitionId, int] = {}
    for tp, earliest in current.earliest.items():
        known = previous.end.get(tp)
        if known is None or tp[0] in recreated:
            start[tp] = earliest
            continue
        if known < earliest:
            losses.append(f"{tp[0]}-{tp[1]}: offsets {known} to {earliest - 1} have aged out")
        start[tp] = max(known, earliest)
    # A leader whose log ends before what was read has nothing new (see `truncated_partitions`).
    end = {tp: max(offset, start[tp]) for tp, offset in current.latest.items()}
    topic_ids = dict(current.topic_ids)
    for tp in sorted(set(previous.end) - set(current.earliest)):
        if not reads(*tp):
            losses.append(f"{tp[0]}-{tp[1]}: in the checkpoint, but the options no longer name it")
        elif tp[0] not in recreated:
            start[tp] = end[tp] = previous.end[tp]
            topic_ids[tp[0]] = previous.topic_ids[tp[0]]
    position = Position(start, end, topic_ids)
    is_new = (
        start != end
        or start != dict(previous.end)
        or position.topic_ids != dict(previous.topic_ids)
    )
    return BatchPlan(position if is_new else None, tuple(losses))


def plan_again(position: Position, current: CurrentOffsets) -> BatchPlan:
    """A batch that an earlier run logged and did not finish, held against the brokers' offsets.

    Its offsets are of the topic ids in it: under a topic with another id they are other records.
    """
    losses: list[str] = []
    start, end = dict(position.start), dict(position.end)
    for tp in sorted(tp for tp, last in position.end.items() if last > position.start[tp]):
        name = f"{tp[0]}-{tp[1]}"
        planned = f"{name}: the checkpoint planned offsets {start[tp]} to {end[tp] - 1}"
        old, now = position.topic_ids.get(tp[0]), current.topic_ids.get(tp[0])
        if now is None or tp not in current.latest:
            losses.append(f"{planned}, but it is gone")
            end[tp] = start[tp]
        elif old != now:
            losses.append(f"{planned} of topic id {old}, but the topic now has id {now}")
            end[tp] = start[tp]
        else:
            first, last = current.earliest[tp], current.latest[tp]
            if start[tp] < first or end[tp] > last:
                losses.append(f"{planned}, but the log has {first} to {last - 1}")
            start[tp] = min(max(start[tp], first), end[tp])
            end[tp] = max(start[tp], min(end[tp], last))
    return BatchPlan(replace(position, start=start, end=end), tuple(losses))
