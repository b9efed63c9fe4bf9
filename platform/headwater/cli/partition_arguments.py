"""Partitions as arguments of commands: `TOPIC`, `TOPIC:0,2`, and lists of replicas."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headwater.cli.existing_topics import existing_topics
from headwater.client.admin.client import Admin
from headwater.client.values import TopicPartition
from headwater.errors import UsageError
from headwater.wire.primitives import INT32_MAX


def name_of(tp: TopicPartition) -> str:
    """`topic-0`."""
    return f"{tp.topic}-{tp.partition}"


def parse_ids(text: str, option: str) -> list[int]:
    """Parse `1,2,3`. Raises UsageError."""
    try:
        return [_id(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: write ids from 0 on with commas, as in 1,2,3"
        ) from None


def _id(text: str) -> int:
    """The id of a broker or partition. Raises ValueError if it does not fit into 31 bits."""
    number = int(text)
    if not 0 <= number <= INT32_MAX:
        raise ValueError(number)
    return number


def parse_assignment(text: str, option: str) -> list[list[int]]:
    """Parse `1:2,2:3`, as Kafka's tool does: colons between the replicas of a partition, commas
    between partitions. Raises UsageError."""
    try:
        return [[_id(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: write the replicas of each partition with colons and partitions "
            "with commas, as in 1:2,2:3"
        ) from None


def expand(admin: Admin, rows: Iterable[str], option: str) -> list[TopicPartition]:
    """The partitions of `TOPIC` (all of them) and `TOPIC:0,2`, each once. Raises UsageError."""
    found: list[TopicPartition] = []
    for row in rows:
        topic, colon, numbers = row.partition(":")
        if not topic or (colon and not numbers):
            raise UsageError(f"{option} {row!r}: write TOPIC or TOPIC:0,2")
        if colon:
            found += [TopicPartition(topic, n) for n in parse_ids(numbers, f"{option} {row!r}")]
        else:
            described = existing_topics(admin, [topic])[topic]
            found += [TopicPartition(topic, p.partition) for p in described.partitions]
    return list(dict.fromkeys(found))


def read_text(path: str) -> str:
    """The text of a file that an option names. Raises UsageError."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}") from None
