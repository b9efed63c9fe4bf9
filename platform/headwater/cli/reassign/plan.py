"""Reassignment plans in the JSON of Kafka's own tool: read, checked, proposed, judged. Pure.

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
from headwater.errors import UsageError, no_text
from headwater.placement import assign, assign_by_rack
from headwater.wire.primitives import INT32_MAX

Plan = dict[TopicPartition, tuple[int, ...]]
Folders = dict[tuple[int, TopicPartition], str]
"""(broker, partition) -> the data folder that its replica shall be in."""

PLAN_VERSION = 1
ANY_FOLDER = "any"
ROW = '{"topic": "t", "partition": 0, "replicas": [1, 2]}'
"""For messages: what a row is like."""
COMPLETE = "complete"
IN_PROGRESS = "in progress"
FAILED = "failed"


def read_plan(text: str, origin: str) -> Plan:
    """A plan from its JSON. Raises UsageError that says what is wrong with it."""
    rows = _rows(text, origin, "partitions")
    plan: Plan = {}
    for row in rows:
        tp, replicas = _partition(row, origin), _replicas(row, origin)
        if tp in plan:
            raise UsageError(f"{origin}: {tp.topic}-{tp.partition} stands in it more than once")
        doubled = sorted(b for b, times in Counter(replicas).items() if times > 1)
        if doubled:
            where = f"{tp.topic}-{tp.partition}"
            raise UsageError(f"{origin}: {where} names replicas more than once: {doubled}")
        plan[tp] = replicas
    if not plan:
        raise UsageError(f"{origin}: it holds no partitions to move")
    return plan


def read_partitions(text: str, origin: str) -> list[TopicPartition]:
    """Partitions to elect leaders of: `{"partitions": [{"topic": "t", "partition": 0}]}`, as
    Kafka's tool takes them. Raises UsageError."""
    found = [_partition(row, origin) for row in _rows(text, origin, "partitions")]
    doubled = sorted({f"{tp.topic}-{tp.partition}" for tp in found if found.count(tp) > 1})
    if doubled:
        raise UsageError(f"{origin}: stand in it more than once: {', '.join(doubled)}")
    if not found:
        raise UsageError(f"{origin}: it holds no partitions")
    return found


def read_folders(text: str, origin: str) -> Folders:
    """The "log_dirs" of a plan that `read_plan` takes: one per replica, or "any" (KIP-113)."""
    found: Folders = {}
    for row in _rows(text, origin, "partitions"):
        folders = row.get("log_dirs")
        if folders is None:
            continue
        tp, replicas = _partition(row, origin), _replicas(row, origin)
        if not isinstance(folders, list) or len(folders) != len(replicas):
            where = f"{tp.topic}-{tp.partition}"
            raise UsageError(f"{origin}: {where}: log_dirs must name a folder, or any, per replica")
        for broker_id, folder in zip(replicas, folders, strict=True):
            if not isinstance(folder, str) or not folder:
                where = f"{tp.topic}-{tp.partition}"
                raise UsageError(f"{origin}: {where}: log_dirs has {folder!r}: give a path, or any")
            if folder != ANY_FOLDER:
                found[broker_id, tp] = _text(folder, origin)
    return found


def judge_folders(
    wanted: Folders, folders: Mapping[int, Sequence[LogDirDescription]]
) -> dict[str, str]:
    """What is still to be said of replicas that are not in the folder wanted: IN_PROGRESS or
    FAILED and a word more, by `t-0 on broker 1`. `folders`: of the brokers that run."""
    told = {}
    for (broker_id, tp), path in sorted(wanted.items()):
        name = f"{tp.topic}-{tp.partition} on broker {broker_id}"
        if broker_id not in folders:
            told[name] = f"{FAILED}, broker {broker_id} does not run: start it"
            continue
        here = _folders_of(tp, folders[broker_id])
        if here.get(path) is True:
            told[name] = f"{IN_PROGRESS}, to {path}"
        elif path not in here:
            told[name] = f"{FAILED}, not in {path} and not on its way"
    return told


def way_back(wanted: Folders, folders: Mapping[int, Sequence[LogDirDescription]]) -> Folders:
    """The folder that each replica which is on its way is still served from: moved there, its
    copy ends."""
    found: Folders = {}
    for (broker_id, tp), path in wanted.items():
        here = _folders_of(tp, folders.get(broker_id, ()))
        served = [at for at, is_future in here.items() if not is_future]
        if here.get(path) is True and served:
            found[broker_id, tp] = served[0]
    return found


def _folders_of(tp: TopicPartition, folders: Sequence[LogDirDescription]) -> dict[str, bool]:
    """The folders that hold a replica; True: a copy on its way."""
    return {row.path: row.replicas[tp].is_future for row in folders if tp in row.replicas}


def read_topics(text: str, origin: str) -> list[str]:
    """Kafka's list of topics to move: `{"version": 1, "topics": [{"topic": "t"}]}`."""
    return [_topic(row, origin) for row in _rows(text, origin, "topics")]


def _value(row: Any, key: str, remedy: str, origin: str) -> Any:
    """What a row has under `key`. Raises UsageError with the remedy."""
    if not isinstance(row, dict):
        raise UsageError(f"{origin}: {row!r} is no row: write an object, as in {ROW}")
    if key not in row:
        raise UsageError(f'{origin}: {row!r} has no "{key}": {remedy}, as in {ROW}')
    return row[key]


def _topic(row: Any, origin: str) -> str:
    remedy = "name the topic"
    value = _value(row, "topic", remedy, origin)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{origin}: {row!r}: topic {value!r} is no name: {remedy}, as in {ROW}")
    return _text(value, origin)


def _text(value: str, origin: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON may hold half of a surrogate pair
        raise UsageError(f"{origin}: {no_text(error)}") from None
    return value


def _partition(row: Any, origin: str) -> TopicPartition:
    """Digits in quotes are a number here, too: samples of Kafka's tools have had them."""
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
    # True is an int of Python's, 1.5 no id, and what is longer has no place on the wire.
    return type(value) is int and 0 <= value <= INT32_MAX


def _rows(text: str, origin: str, key: str) -> list[Any]:
    try:
        document = json.loads(text)
    except ValueError as e:
        raise UsageError(f"{origin}: not JSON: {e}") from e
    except RecursionError:
        raise UsageError(f"{origin}: not a plan: lists in lists in lists") from None
    if isinstance(document, dict) and document.get("version", PLAN_VERSION) != PLAN_VERSION:
        raise UsageError(
            f"{origin}: version {document['version']!r}, known is {PLAN_VERSION}: write it anew, "
            "or use the newer headwater command"
        )
    rows = document.get(key) if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise UsageError(f'{origin}: no list "{key}"')
    return rows


def plan_document(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The plan as `read_plan` reads it."""
    rows = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return {"version": PLAN_VERSION, "partitions": rows}


def current_plan(topics: Iterable[TopicDescription]) -> Plan:
    """Where the replicas are now: what brings them back."""
    return {TopicPartition(t.name, p.partition): p.replicas for t in topics for p in t.partitions}


def propose(
    topics: Iterable[TopicDescription],
    broker_ids: Sequence[int],
    live: Collection[Broker],
    entropy: Entropy,
    *,
    by_rack: bool = True,
) -> Plan:
    """Every topic placed anew over these brokers, in the order given (Kafka's algorithm).

    Racks count when every broker has one. Raises UsageError, KafkaError (too few brokers).
    """
    doubled = sorted(b for b, times in Counter(broker_ids).items() if times > 1)
    if doubled:
        raise UsageError(f"brokers that are listed more than once: {doubled}")
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


def judge(
    plan: Plan, now: Mapping[TopicPartition, Sequence[int]], moving: Collection[TopicPartition]
) -> dict[TopicPartition, str]:
    """How far each partition of a plan is; the order of replicas counts, as the first leads."""
    found: dict[TopicPartition, str] = {}
    for tp, target in plan.items():
        if tp in moving:
            found[tp] = IN_PROGRESS
        else:
            found[tp] = COMPLETE if tuple(now.get(tp, ())) == target else FAILED
    return found
