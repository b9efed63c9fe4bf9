"""Topics, partitions and offsets as callers write them.

For example "flights", `TopicPartition("flights", 3)` or `("flights", 3)`, `{("flights", 3): 17}`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headwater.client.errors import OptionError
from headwater.client.option_rules import as_integer
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import UsageError, encoding_error
from headwater.topic_names import topic_name_fault

PartitionName = TopicPartition | tuple[str, int]
V = TypeVar("V")
ByPartition = Mapping[TopicPartition, V] | Mapping[tuple[str, int], V]
"""Two, as a mapping is invariant in its keys: a `dict[TopicPartition, int]` is no mapping of the
union for type checkers."""
Offsets = ByPartition[OffsetAndMetadata | int]


def topic_name(topic: Any) -> str:
    """A legal topic name. Raises OptionError, UsageError."""
    if not isinstance(topic, str):
        raise OptionError(f"topic {topic!r} is of type {type(topic).__name__}: give a string")
    try:
        topic.encode()
    except UnicodeEncodeError as e:
        raise encoding_error(e) from None
    if fault := topic_name_fault(topic):
        raise UsageError(fault)
    return topic


def named_partition(partition: Any) -> TopicPartition:
    """A partition as callers write it: a TopicPartition or (topic, partition).

    Raises OptionError.
    """
    fits = isinstance(partition, tuple | list) and len(partition) == 2
    if fits and isinstance(partition[0], str) and not isinstance(partition[1], bool):
        try:
            return TopicPartition(partition[0], operator.index(partition[1]))
        except TypeError:
            pass  # the error below says what is wanted
    raise OptionError(f"{partition!r} is no partition: give TopicPartition(topic, partition)")


def named_partitions(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Several of them. Raises OptionError, also for a string."""
    if isinstance(partitions, str) or not isinstance(partitions, Iterable):
        raise OptionError(f"{partitions!r}: give a list of TopicPartition(topic, partition)")
    if isinstance(partitions, TopicPartition):
        raise OptionError(f"{partitions!r} is one partition: give a list of partitions")
    return [named_partition(tp) for tp in partitions]


def offset_rows(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit. Raises OptionError, UsageError."""
    if not isinstance(offsets, Mapping):
        raise OptionError(f"commit of {offsets!r}: give {{TopicPartition(topic, n): offset}}")
    rows = {}
    for tp, at in offsets.items():
        row = (
            at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(as_integer("offset", at))
        )
        if row.offset < 0:
            raise UsageError(f"commit of {tp[0]}-{tp[1]} at offset {row.offset}: it is negative")
        rows[TopicPartition(*tp)] = row
    return rows
