"""Topics and partitions as callers write them: "flights", `TopicPartition("flights", 3)` or
`("flights", 3)`."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from headwater.client.errors import OptionError
from headwater.client.values import TopicPartition
from headwater.errors import UsageError, encoding_error
from headwater.topic_names import topic_name_fault

PartitionName = TopicPartition | tuple[str, int]


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
