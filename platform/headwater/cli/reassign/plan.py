"""Reassignment plans in the JSON of Kafka's own tool: parsed, checked, generated, verified. Pure.

{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2],
                               "log_dirs": ["/disk1", "any"]}]}
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from headwater.client.values import (
    Broker,
    LogDirDescription,
    TopicDescription,
    TopicPartition,
)
from headwater.entropy import Entropy
from headwater.errors import UsageError, encoding_error
from headwater.replica_placement import assign, assign_by_rack
from headwater.wire.primitives import INT32_MAX

Plan = dict[TopicPartition, tuple[int, ...]]
LogDirs = dict[tuple[int, TopicPartition], str]
"""(broker, partition) -> the log dir that the replica is moved to."""

PLAN_VERSION = 1
ANY_LOG_DIR = "any"
ROW = '{"topic": "t", "partition": 0, "replicas": [1, 2]}'
"""An example for messages."""
COMPLETE = "complete"
IN_PROGRESS = "in progress"
FAILED = "failed"


def read_plan(text: str, origin: str) -> Plan:
    """Parse a plan. Raises UsageError that names the mistake."""
    rows = _rows(text, origin, "partitions")
    plan: Plan = {}
    for row in rows:
        tp, replicas = _partition(row, origin), _replicas(row, origin)
        if tp in plan:
            raise UsageError(f"{origin}: {tp.topic}-{tp.partition} is listed more than once")
        doubled = sorted(b for b, times in Counter(replicas).items() if times > 1)
        if doubled:
            where = f"{tp.topic}-{tp.partition}"
            raise UsageError(f"{origin}: {where} names replicas more than once: {doubled}")
        plan[tp] = replicas
    if not plan:
        raise UsageError(f"{origin}: it has no partitions to move")
    return plan


def read_partitions(text: str, origin: str) -> list[TopicPartition]:
    """Parse the partitions of an election, in the JSON of Kafka's tool:
    `{"partitions": [{"topic": "t", "partition": 0}]}`. Raises UsageError."""
    found = [_partition(row, origin) for row in _rows(text, origin, "partitions")]
    doubled = sorted({f"{tp.topic}-{tp.partition}" for tp in found if found.count(tp) > 1})
    if doubled:
        raise UsageError(f"{origin}: listed more than once: {', '.join(doubled)}")
    if not found:
        raise UsageError(f"{origin}: it has no partitions")
    return found


def read_log_dirs(text: str, origin: str) -> LogDirs:
    """Parse the "log_dirs" of a plan: one per replica, "any" for no move (KIP-113)."""
    found: LogDirs = {}
    for row in _rows(text, origin, "partitions"):
        paths = row.get("log_dirs")
        if paths is None:
            continue
        tp, replicas = _partition(row, origin), _replicas(row, origin)
        if not isinstance(paths, list) or len(paths) != len(replicas):
            where = f"{tp.topic}-{tp.partition}"
            raise UsageError(f"{origin}: {where}: log_dirs must have a path, or any, per replica")
        for broker_id, path in zip(replicas, paths, strict=True):
            if not isinstance(path, str) or not path:
                where = f"{tp.topic}-{tp.partition}"
                raise UsageError(f"{origin}: {where}: log_dirs has {path!r}: give a path, or any")
            if path != ANY_LOG_DIR:
                found[broker_id, tp] = _text(path, origin)
    return found


def log_dir_moves(
    wanted: LogDirs, log_dirs: Mapping[int, Sequence[LogDirDescription]]
) -> dict[str, str]:
    """The state of every replica that is not in its log dir yet: IN_PROGRESS or FAILED and a
    reason, by `t-0 on broker 1`. `log_dirs` are those of the brokers that run."""
    states = {}
    for (broker_id, tp), path in sorted(wanted.items()):
        name = f"{tp.topic}-{tp.partition} on broker {broker_id}"
        if broker_id not in log_dirs:
            states[name] = f"{FAILED}, broker {broker_id} does not run: start it"
            continue
        present = _log_dirs_of(tp, log_dirs[broker_id])
        if present.get(path) is True:
            states[name] = f"{IN_PROGRESS}, to {path}"
        elif path not in present:
            states[name] = f"{FAILED}, not in {path} and not on its way"
    return states


def current_log_dirs(
    wanted: LogDirs, log_dirs: Mapping[int, Sequence[LogDirDescription]]
) -> LogDirs:
    """The log dirs from which replicas that are being moved are served: a move there ends the
    copy."""
    found: LogDirs = {}
    for (broker_id, tp), path in wanted.items():
        present = _log_dirs_of(tp, log_dirs.get(broker_id, ()))
        served = [at for at, is_future in present.items() if not is_future]
        if present.get(path) is True and served:
            found[broker_id, tp] = served[0]
    return found


def _log_dirs_of(tp: TopicPartition, log_dirs: Sequence[LogDirDescription]) -> dict[str, bool]:
    """The log dirs that have a replica of the partition -> whether it is a future replica."""
    return {row.path: row.replicas[tp].is_future for row in log_dirs if tp in row.replicas}


def read_topics(text: str, origin: str) -> list[str]:
    """Parse a list of topics: `{"version": 1, "topics": [{"topic": "t"}]}`."""
    return [_topic(row, origin) for row in _rows(text, origin, "topics")]


def _value(row: Any, key: str, remedy: str, origin: str) -> Any:
    """The value of `key` in a row. Raises UsageError with the remedy."""
    if not isinstance(row, dict):
        raise UsageError(f"{origin}: {row!r} is not a JSON object: write one, as in {ROW}")
    if key not in row:
        raise UsageError(f'{origin}: {row!r} has no "{key}": {remedy}, as in {ROW}')
    return row[key]


def _topic(row: Any, origin: str) -> str:
    remedy = "name the topic"
    value = _value(row, "topic", remedy, origin)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{origin}: {row!r}: topic {value!r} is not a name: {remedy}, as in {ROW}")
    return _text(value, origin)


def _text(value: str, origin: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON may have half of a surrogate pair
        raise UsageError(f"{origin}: {encoding_error(error)}") from None
    return value


def _partition(row: Any, origin: str) -> TopicPartition:
    """The partition of a row. A number in quotes is accepted: samples of Kafka's tools had them."""
    topic, remedy = _topic(row, origin), "give a whole number from 0 on"
    value = _value(row, "partition", remedy, origin)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not _is_id(value):
        raise UsageError(f"{origin}: {row!r}: partition {value!r}: {remedy}, as in {ROW}")
    return TopicPartition(topic, value)


def _replicas(row: Any, origin: str) -> tuple[int, ...]:
    remedy = "give a list of broker ids"
    value = _value(row, "replicas", remedy, origin)
    if not isinstance(value, list) or not all(map(_is_id, value)):
        raise UsageError(f"{origin}: {row!r}: replicas {value!r}: {remedy}, as in {ROW}")
    return tuple(value)


def _is_id(value: Any) -> bool:
    # In Python True is an int; ids have 31 bits.
    return type(value) is int and 0 <= value <= INT32_MAX


def _rows(text: str, origin: str, key: str) -> list[Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        raise UsageError(f"{origin}: not JSON: {e}") from e
    except RecursionError:
        raise UsageError(f"{origin}: not a plan: it is nested too deep") from None
    if isinstance(document, dict) and document.get("version", PLAN_VERSION) != PLAN_VERSION:
        raise UsageError(
            f"{origin}: version {document['version']!r}, this command reads {PLAN_VERSION}: "
            "generate the plan again, or use a newer Headwater"
        )
    rows = document.get(key) if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise UsageError(f'{origin}: no list "{key}"')
    return rows


def plan_document(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The JSON document of a plan, as `read_plan` parses it."""
    rows = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return {"version": PLAN_VERSION, "partitions": rows}


def current_plan(topics: Iterable[TopicDescription]) -> Plan:
    """The plan that restores the present replicas."""
    return {TopicPartition(t.name, p.partition): p.replicas for t in topics for p in t.partitions}


def propose(
    topics: Iterable[TopicDescription],
    broker_ids: Sequence[int],
    live: Collection[Broker],
    entropy: Entropy,
    *,
    by_rack: bool = True,
) -> Plan:
    """Generate a plan: every topic placed on these brokers by Kafka's algorithm.

    Racks count if every broker has one. Raises UsageError, or KafkaError for too few brokers.
    """
    doubled = sorted(b for b, times in Counter(broker_ids).items() if times > 1)
    if doubled:
        raise UsageError(f"brokers listed more than once: {doubled}")
    known = {b.node_id: b.rack for b in live}
    missing = sorted(set(broker_ids) - known.keys())
    if missing:
        raise UsageError(f"brokers {missing} do not run; running are {sorted(known)}")
    racks = {b: rack for b in broker_ids if (rack := known[b]) is not None}
    plan: Plan = {}
    for topic in topics:
        count, factor = len(topic.partitions), len(topic.partitions[0].replicas)
        last = len(broker_ids) - 1
        start = min(int(entropy.uniform(0, len(broker_ids))), last)
        shift = min(int(entropy.uniform(0, len(broker_ids))), last)
        if by_rack and len(racks) == len(broker_ids):
            placed = assign_by_rack(racks, count, factor, start=start, shift=shift)
        else:
            placed = assign(broker_ids, count, factor, start=start, shift=shift)
        for index, replicas in placed.items():
            plan[TopicPartition(topic.name, index)] = replicas
    return plan


def states_of(
    plan: Plan, now: Mapping[TopicPartition, Sequence[int]], moving: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """COMPLETE, IN_PROGRESS or FAILED for each partition of a plan. The order of the replicas
    counts: the first is the preferred leader."""
    found: dict[TopicPartition, str] = {}
    for tp, target in plan.items():
        if tp in moving:
            found[tp] = IN_PROGRESS
        else:
            found[tp] = COMPLETE if tuple(now.get(tp, ())) == target else FAILED
    return found
