"""Checks of the arguments of `Admin`'s calls, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.client.admin.open_transactions import HangingName
from headwater.client.admin.transactions import TRANSACTION_STATES, TransactionFilter
from headwater.client.errors import OptionError
from headwater.client.option_rules import as_integer, integer
from headwater.client.partition_names import named_partition
from headwater.client.transaction_values import ProducerIdAndEpoch
from headwater.client.values import NewTopic, OffsetAndMetadata, TopicPartition
from headwater.errors import UsageError
from headwater.wire.primitives import INT16_MAX, INT32_MAX, INT64_MAX

_timeout = integer(0)
_partition_count = integer(1)
_broker_id = integer(0)


def timeout(value: Any) -> int:
    """`timeout_ms` of a call. Raises OptionError, UsageError."""
    return int(_timeout("timeout_ms", value))


def names(what: str, given: Any) -> list[str]:
    """Names in a list, each once. A single string is refused: it would be taken letter by letter.

    Raises OptionError, UsageError.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise OptionError(f"{what} is {given!r}: give a list of names")
    return list(dict.fromkeys(name(what, item) for item in given))


def name(what: str, given: Any) -> str:
    """One name that is not empty. Raises OptionError, UsageError."""
    if not isinstance(given, str):
        raise OptionError(f"{what}: {given!r} is of type {type(given).__name__}: give a string")
    if not given:
        raise UsageError(f"{what}: a name is empty")
    return given


def epoch(what: str, given: Any, *, least: int = 0) -> int:
    """The number of an epoch. Raises OptionError, UsageError."""
    return int(integer(least, INT64_MAX)(what, given))


def new_topics(given: Any) -> list[NewTopic]:
    """Topics to create, as NewTopic or name. Raises OptionError, UsageError."""
    if isinstance(given, str | NewTopic | Mapping) or not isinstance(given, Iterable):
        raise OptionError(f"topics is {given!r}: give a list of NewTopic or names")
    return [_new_topic(NewTopic(item) if isinstance(item, str) else item) for item in given]


def _new_topic(topic: Any) -> NewTopic:
    if not isinstance(topic, NewTopic):
        raise OptionError(f"{topic!r} is of type {type(topic).__name__}: give a NewTopic or a name")
    name("topics", topic.name)
    for field in ("num_partitions", "replication_factor"):
        count = as_integer(f"{field} of {topic.name}", getattr(topic, field))
        if count < 1 and count != -1:
            raise UsageError(
                f"{field} of {topic.name} is {count}: give 1 or more, or -1 for the default"
            )
    if topic.configs is not None:
        settings(f"configs of {topic.name}", topic.configs)
    if topic.assignments is not None:
        for partition, replicas in mapping("assignments", topic.assignments).items():
            as_integer(f"a partition of {topic.name}", partition)
            broker_ids(f"replicas of {topic.name}-{partition}", replicas)
    return topic


def broker_ids(what: str, given: Any) -> list[int]:
    """Ids of brokers. Raises OptionError, UsageError."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise OptionError(f"{what} is {given!r}: give a list of broker ids")
    return [_broker_id(what, item) for item in given]


def partition_counts(given: Any) -> dict[str, int]:
    """Topic -> number of partitions. Raises OptionError, UsageError."""
    return {
        name("counts", topic): int(_partition_count(f"partitions of {topic}", count))
        for topic, count in mapping("counts", given).items()
    }


def assignments(given: Any) -> dict[str, Sequence[Sequence[int]]]:
    """Topic -> the replicas of each new partition. Raises OptionError, UsageError."""
    found: dict[str, Sequence[Sequence[int]]] = {}
    for topic, rows in mapping("assignments", given or {}).items():
        if isinstance(rows, str | bytes) or not isinstance(rows, Sequence):
            raise OptionError(f"assignments of {topic} is {rows!r}: give a list of lists of ids")
        found[name("assignments", topic)] = [broker_ids(f"replicas of {topic}", r) for r in rows]
    return found


def settings(what: str, given: Any) -> dict[str, str | None]:
    """Configuration keys and values; None resets. Raises OptionError, UsageError."""
    found: dict[str, str | None] = {}
    for key, value in mapping(what, given).items():
        if value is not None and not isinstance(value, str):
            kind = type(value).__name__
            raise OptionError(f"{what}: {key} is {value!r}, of type {kind}: give a string or None")
        found[name(what, key)] = value
    return found


def quotas(given: Any) -> dict[str, float | None]:
    """Quota keys and values; None removes. Raises OptionError, UsageError."""
    found: dict[str, float | None] = {}
    for key, value in mapping("quotas", given).items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise OptionError(f"quota {key} is {value!r}: give a number, or None to remove it")
        found[name("quotas", key)] = value
    return found


def mapping(what: str, given: Any) -> Mapping[Any, Any]:
    """A dict. Raises OptionError."""
    if not isinstance(given, Mapping):
        raise OptionError(f"{what} is {given!r}, of type {type(given).__name__}: give a dict")
    return given


def integers_by_partition(what: str, given: Any, low: int) -> dict[TopicPartition, int]:
    """Partition -> a whole number of at least `low`. Raises OptionError, UsageError."""
    rule = integer(low, INT64_MAX)
    return {
        (tp := named_partition(key)): int(rule(f"{what} of {tp.topic}-{tp.partition}", value))
        for key, value in mapping(what, given).items()
    }


def offsets_by_partition(given: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Partition -> an offset to commit. Raises OptionError, UsageError."""
    found = {}
    for key, value in mapping("offsets", given).items():
        tp = named_partition(key)
        what = f"offset of {tp.topic}-{tp.partition}"
        at = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
        if as_integer(what, at.offset) < 0:
            raise UsageError(f"{what} is {at.offset}: it is negative")
        found[tp] = at
    return found


def replicas_by_partition(given: Any) -> dict[TopicPartition, list[int] | None]:
    """Partition -> the replicas to move to; None cancels. Raises OptionError, UsageError."""
    return {
        (tp := named_partition(key)): None
        if value is None
        else broker_ids(f"replicas of {tp.topic}-{tp.partition}", value)
        for key, value in mapping("targets", given).items()
    }


def paths_by_partition(given: Any) -> dict[TopicPartition, str]:
    """Partition -> a log dir. Raises OptionError, UsageError."""
    return {named_partition(k): name("log dir", v) for k, v in mapping("targets", given).items()}


def one_of(what: str, given: Any, words: Iterable[str]) -> str:
    """One of the words. Raises UsageError."""
    if given not in words:
        raise UsageError(f"{what} {given!r}: give one of {', '.join(map(repr, words))}")
    return str(given)


def transaction_filter(
    states: Any, producer_ids: Any, older_than_ms: Any, pattern: Any
) -> TransactionFilter:
    """The filters of `list_transactions`. Raises OptionError, UsageError."""
    if isinstance(producer_ids, str | bytes | Mapping) or not isinstance(producer_ids, Iterable):
        raise OptionError(f"producer_ids is {producer_ids!r}: give a list of producer ids")
    return TransactionFilter(
        states=[one_of("states", word, TRANSACTION_STATES) for word in names("states", states)],
        producer_ids=[_in_range("producer_ids", value, INT64_MAX) for value in producer_ids],
        older_than_ms=None
        if older_than_ms is None
        else _in_range("older_than_ms", older_than_ms, INT64_MAX),
        transactional_id_pattern=None
        if pattern is None
        else name("transactional_id_pattern", pattern),
    )


def producer_id_and_epoch(what: str, given: Any) -> ProducerIdAndEpoch:
    """A producer id with its epoch. Raises OptionError, UsageError."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise OptionError(f"{what} is {given!r}: give ProducerIdAndEpoch(producer_id, epoch)")
    return ProducerIdAndEpoch(
        _in_range(f"producer id of {what}", given[0], INT64_MAX),
        _in_range(f"producer epoch of {what}", given[1], INT16_MAX),
    )


def hanging_transaction(first_offset: Any, producer: Any, coordinator_epoch: Any) -> HangingName:
    """What names a transaction in its partition. Raises OptionError, UsageError."""
    if (first_offset is None) == (producer is None):
        raise UsageError("which transaction? Give its first_offset or its producer, one of the two")
    epoch = as_integer("coordinator_epoch", coordinator_epoch)
    if not -1 <= epoch <= INT32_MAX:
        raise UsageError(f"coordinator_epoch is {epoch}: give -1 to {INT32_MAX}")
    if producer is not None:
        return HangingName(None, producer_id_and_epoch("producer", producer), epoch)
    return HangingName(_in_range("first_offset", first_offset, INT64_MAX), None, epoch)


def _in_range(what: str, given: Any, most: int) -> int:
    value = as_integer(what, given)
    if not 0 <= value <= most:
        raise UsageError(f"{what} is {value}: give 0 to {most}")
    return value
