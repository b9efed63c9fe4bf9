"""Topics that a command reads or changes must exist: no look-up creates one, a typo is an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headwater.client.admin.client import Admin
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import TopicDescription, TopicPartition
from headwater.errors import ErrorCode, KafkaError


def existing_topics(admin: Admin, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Describe topics. Raises UnknownTopicOrPartitionError that suggests the nearest name."""
    wanted = list(dict.fromkeys(names))
    with nearest_suggested(admin, wanted):
        return admin.describe_topics(wanted, patient=False)


@contextmanager
def nearest_suggested(admin: Admin, names: Iterable[str]) -> Iterator[None]:
    """Add the nearest existing topic to the error of a call that names one that does not exist."""
    try:
        yield
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        hint = suggestion(names, admin.list_topics(include_internal=True))
        if not hint:
            raise
        raise UnknownTopicOrPartitionError(f"{error.detail}: {hint}") from error


def suggestion(names: Iterable[str], known: Iterable[str]) -> str:
    """`did you mean flights?` for the first name that is unknown; empty when nothing is near."""
    topics = set(known)
    missing = [name for name in names if name not in topics]
    near = difflib.get_close_matches(missing[0], sorted(topics), n=1) if missing else []
    return f"did you mean {near[0]}?" if near else ""


def check_partitions(
    topics: dict[str, TopicDescription], partitions: Iterable[TopicPartition]
) -> None:
    """Raise UnknownTopicOrPartitionError for a partition that its topic does not have."""
    for topic, partition in partitions:
        count = len(topics[topic].partitions)
        if partition >= count:
            raise UnknownTopicOrPartitionError(
                f"{topic}-{partition}: the topic has partitions 0 to {count - 1}"
            )
