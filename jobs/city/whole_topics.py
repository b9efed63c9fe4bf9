"""Topics read from their first record to the end that they have now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater import Consumer, ConsumerRecord, TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError

POLL_MS = 100.0
TIMEOUT_S = 60.0


def partitions_of(consumer: Consumer, topics: Sequence[str]) -> list[TopicPartition]:
    """Every partition of these topics."""
    return [TopicPartition(t, p) for t in topics for p in range(consumer.partitions_for(t))]


def read_to_end(
    consumer: Consumer, topics: Sequence[str], clock: Clock
) -> Iterator[ConsumerRecord]:
    """The records of whole topics; assigns the consumer. Raises HeadwaterError after a minute."""
    parts = partitions_of(consumer, topics)
    ends = consumer.end_offsets(parts)
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    deadline_s = clock.monotonic() + TIMEOUT_S
    while any(consumer.position(part) < ends[part] for part in parts):
        if clock.monotonic() > deadline_s:
            raise HeadwaterError(f"{', '.join(topics)}: not read within {TIMEOUT_S:.0f} s")
        for records in consumer.poll(POLL_MS).values():
            yield from records
