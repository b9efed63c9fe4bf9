"""The driver's part of a share group whose records join the epoch: it *holds* each micro-batch.

The driver acquires records as a member of the group, and turns their locks into holds of an owner,
which the checkpoint names, before Spark writes the batch to its offset log. Holds outlive locks,
sessions, leaders and drivers, so a batch that Spark repeats has the very same records, which no
other member has got meanwhile. They are accepted once Spark has the batch in its commit log. A sink
that writes each batch once, then, writes each record once.

Runs of one query are ordered by tickets (docs/epochs.md): one that starts claims the owner in each
partition, which fences the runs before it. Then it makes order of what it finds held:

- of the last complete batch, and in its offset: it is accepted;
- of that batch or an older one, and in no offset: a run that lost the race for the offset log left
  it behind. It is released;
- of the next batch: a run died before or after its offset was logged. It is that batch;
- of a later one: the checkpoint is older than the group, an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.client.blocking.share_holds import HoldOutcome, HoldRow, ShareHolds
from headwater.client.share_consumer import ShareConsumer
from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.share_hold_operation import ShareHoldOperation
from headwater_spark.source.share_offsets import (
    Ranges,
    ShareBatch,
    from_offset,
    ranges_by_partition,
    without,
)
from headwater_spark.source.share_options import ShareOptions
from headwater_spark.source.share_polls import Ends, SharePolls

Place = tuple[str, int]
"""Topic and partition."""
Places = Mapping[Place, Ranges]
_LOST = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.PRODUCER_FENCED,
    }
)

logger = logging.getLogger(__name__)


class HoldsLostError(HeadwaterError):
    """The query does not hold the records of a batch any more: it can't be run, or not accepted."""


@dataclass(frozen=True, slots=True)
class HoldParts:
    """What a `HeldQueue` works with."""

    consumer: ShareConsumer
    holds: ShareHolds
    ticket: Callable[[], int]
    """Allocates one."""
    topics: Callable[[], Mapping[str, tuple[UUID, str, int]]]
    """The topics to read: id, id in Kafka's base64 form, number of partitions."""
    new_owner: Callable[[], str]
    clock: Clock
    close: Callable[[], None]
    """Close the connections of the others."""


class HeldQueue:
    """What a query holds of its share group. Spark calls it on one thread."""

    def __init__(self, options: ShareOptions, parts: HoldParts) -> None:
        self._group = options.group
        self._parts = parts
        self._polls = SharePolls(parts.consumer, parts.clock)
        self._ticket = -1
        self._is_begun = False
        self._adopted: dict[Place, Ranges] = {}
        """What was found held for the batch after the last complete one."""
        self._log_starts: dict[Place, int] = {}
        self._ids: dict[str, tuple[UUID, str, int]] = {}
        self._next: ShareBatch | None = None
        """The batch that was planned last."""
        self._accepted = -1
        """The last batch whose records this run has accepted."""

    def next(self, start: ShareBatch, ends: Ends | None) -> ShareBatch | None:
        """The batch after `start`, which is complete; None when there is nothing to read.

        Raises KafkaError, HoldsLostError.
        """
        self.completed(start)
        if self._next is not None and self._next.number == start.number + 1:
            return self._next  # planned before, and not run yet
        number = start.number + 1
        if not start.owner:
            self._next = ShareBatch(self._group, number, {}, {}, self._parts.new_owner())
            return self._next
        self._begin(start, start.owner)
        found = self._adopted or self._acquired(start, ends)
        self._adopted = {}
        if not found:
            return None
        ids = {topic: self._ids[topic][1] for topic, _ in found}
        self._next = ShareBatch(self._group, number, found, ids, start.owner)
        return self._next

    def completed(self, batch: ShareBatch) -> None:
        """Spark has this batch in its commit log: accept its records, durably."""
        if batch.number <= self._accepted or not batch.acquired:
            return
        self._begin(batch, batch.owner)
        self._end(ShareHoldOperation.ACCEPT, batch.owner, batch.number, batch.acquired)
        self._accepted = batch.number

    def planned(self, start: ShareBatch, end: ShareBatch) -> None:
        """Spark plans the batch `end`; `start` is complete. Records of a batch that an earlier run
        has planned must still be held, or its sink might write what another member has got."""
        if not end.acquired or end == self._next:
            return
        self._begin(start, end.owner)
        self.completed(start)
        found, self._adopted = self._adopted, {}
        lost = [
            f"{place[0]}-{place[1]} {first} to {last}"
            for place, ranges in sorted(end.acquired.items())
            for first, last in without(
                from_offset(ranges, self._log_starts.get(place, 0)), found.get(place, [])
            )
        ]
        if lost:
            raise self._lost(end.number, f"these are not held: {', '.join(lost)}")
        extra = {place: without(rows, end.acquired.get(place, [])) for place, rows in found.items()}
        self._end(ShareHoldOperation.RELEASE, end.owner, end.number, extra)
        self._next = end

    def close(self) -> None:
        """Leave the group. What is held stays so: the next run goes on with it."""
        try:
            self._parts.consumer.close()
        finally:
            self._parts.close()

    def _begin(self, complete: ShareBatch, owner: str) -> None:
        """Fence earlier runs, once, and make order of what they hold. `complete` is the last batch
        that is."""
        if self._is_begun:
            return
        self._ticket = self._parts.ticket()
        self._ids = dict(self._parts.topics())
        rows = [
            HoldRow(topic, topic_id, partition)
            for topic, (topic_id, _, partitions) in sorted(self._ids.items())
            for partition in range(partitions)
        ]
        outcomes = self._parts.holds.ask(ShareHoldOperation.CLAIM, rows, owner, self._ticket)
        for row, outcome in outcomes.items():
            if outcome.error is None:
                self._arrange((row.topic, row.partition), outcome, complete, owner)
            elif outcome.error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise self._refused(outcome.error, complete.number)
        self._is_begun = True

    def _arrange(self, place: Place, found: HoldOutcome, complete: ShareBatch, owner: str) -> None:
        self._log_starts[place] = found.log_start
        by_batch: dict[int, Ranges] = {}
        for held in found.holds:
            by_batch.setdefault(held.batch, []).append((held.first, held.last))
        for batch, ranges in sorted(by_batch.items()):
            if batch > complete.number + 1:
                raise self._lost(
                    complete.number,
                    f"{place[0]}-{place[1]} is held for batch {batch}: the checkpoint is older "
                    "than the group",
                )
            if batch == complete.number + 1:
                self._adopted[place] = ranges
                continue
            if batch == complete.number:
                ranges = without(ranges, complete.acquired.get(place, []))
            self._end(ShareHoldOperation.RELEASE, owner, batch, {place: ranges})

    def _acquired(self, start: ShareBatch, ends: Ends | None) -> dict[Place, Ranges]:
        """New records, held."""
        held: dict[Place, Ranges] = {}
        while not held and (polled := self._polls.next(ends)):
            wanted = ranges_by_partition((r.topic, r.partition, r.offset) for r in polled)
            operation, member = ShareHoldOperation.HOLD, self._parts.consumer.member_id
            outcomes = self._ask(operation, start.owner, start.number + 1, wanted, member)
            self._parts.consumer.hand_over(polled)
            for row, outcome in outcomes.items():
                if outcome.error is None:
                    held[row.topic, row.partition] = wanted[row.topic, row.partition]
                elif outcome.error.code is ErrorCode.INVALID_RECORD_STATE:
                    logger.warning("records are delivered again: %s", outcome.error)
                else:
                    raise self._refused(outcome.error, start.number + 1)
        return held

    def _end(self, operation: ShareHoldOperation, owner: str, batch: int, places: Places) -> None:
        """Accept or release."""
        for outcome in self._ask(operation, owner, batch, places).values():
            if outcome.error is not None:
                raise self._refused(outcome.error, batch)

    def _ask(
        self,
        operation: ShareHoldOperation,
        owner: str,
        batch: int,
        places: Places,
        member: str = "",
    ) -> dict[HoldRow, HoldOutcome]:
        rows = [
            HoldRow(topic, self._topic_id(topic), partition, batch, tuple(ranges))
            for (topic, partition), ranges in sorted(places.items())
            if ranges
        ]
        return self._parts.holds.ask(operation, rows, owner, self._ticket, member)

    def _topic_id(self, topic: str) -> UUID:
        if topic not in self._ids:
            raise HoldsLostError(
                f"share group {self._group}: the checkpoint holds records of topic {topic}, which "
                "option 'subscribe' does not name any more: name it until they are accepted"
            )
        return self._ids[topic][0]

    def _refused(self, error: KafkaError, batch: int) -> HeadwaterError:
        return self._lost(batch, str(error)) if error.code in _LOST else error

    def _lost(self, batch: int, why: str) -> HoldsLostError:
        return HoldsLostError(
            f"share group {self._group}, batch {batch} of the query's checkpoint: {why}. If no "
            "other run of this query is under way, start it with a new checkpoint: what is not "
            "accepted is delivered to it once its holds are ended (headwater share-groups holds)"
        )
