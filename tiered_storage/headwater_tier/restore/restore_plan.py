"""The restored cluster, out of the catalog and the ends of the tables. Pure.

It has topics, configs, users, ACLs, groups, and the first offset of each log.
`tables_and_zookeeper` refuses to restore into a cluster that is not empty.

Offsets: no partition may give an offset that anybody has seen. The last observed log end is
seconds old, or hours if the catalog was not kept while producers went on. So each log starts above
the highest offset known by what one partition can have been given since then: gaps are legal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headwater.errors import UsageError
from headwater.ids import id_from_text, id_text
from headwater.wire.restore_names import GROUPS_PENDING
from headwater_tier.catalog.rows import (
    BROKER_CONFIGS,
    CLUSTER_ID,
    CONTROLLER_EPOCH,
    NEVER_SEEN,
    PRODUCER_IDS,
    TOPIC_CONFIGS,
    TOPICS,
    USERS,
    Catalog,
    CatalogRow,
    Kind,
    dump,
    last_name,
    of_kind,
)

OFFSET_GAP = 100_000_000
"""Offsets left out at least."""
RECORDS_PER_S = 10_000_000
"""More than one partition is given in a second, in batches of the smallest records."""
UNSEEN_GAP = 1 << 50
"""Left out where no end was ever seen: a million records per second for 35 years."""
EPOCH_GAP = 100
"""Elections that the catalog may have missed."""
FIRST_OFFSET_MAX = 1 << 62
"""Half of int64 stays for new records."""
PRODUCER_ID_GAP = 1_000_000
PRODUCER_ID_BLOCK = 1_000
ENABLE_KEY = "remote.storage.enable"
TABLE_URI_KEY = "headwater.table.uri"
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A node of ZooKeeper to write."""

    path: str
    data: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """One topic: `replicas` by partition, and where each log starts."""

    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    replicas: Mapping[int, tuple[int, ...]]
    is_tiered: bool
    epochs: Mapping[int, int] = field(default_factory=dict)
    """The last leader epoch that was observed, by partition."""
    observed: Mapping[int, int] = field(default_factory=dict)
    """The highest offset known outside the table, exclusive: log ends, committed offsets."""
    observed_ms: Mapping[int, int] = field(default_factory=dict)
    """When each partition's end was last seen; without those whose end never was."""

    @property
    def table_base(self) -> str:
        """The base folder of its table, if the topic names its own."""
        return self.configs.get(TABLE_URI_KEY, "")

    def first_offsets(
        self, tiered: Mapping[int, int], now_ms: int, gap: int | None = None
    ) -> dict[int, int]:
        """The first offset that each partition may give; `tiered`: the ends of the table. Without
        a `gap` it is by the age of the partition's last observation. Raises UsageError."""
        first = {
            p: max(tiered.get(p, 0), self.observed.get(p, 0))
            + (self._gap(p, now_ms) if gap is None else gap)
            for p in sorted(self.replicas)
        }
        for partition, offset in first.items():
            if offset > FIRST_OFFSET_MAX:
                raise UsageError(
                    f"partition {partition} of {self.name} would start at offset {offset}, which"
                    " leaves too few of int64: give a smaller --offset-gap"
                )
        return first

    def _gap(self, partition: int, now_ms: int) -> int:
        seen_ms = self.observed_ms.get(partition)
        return UNSEEN_GAP if seen_ms is None else offset_gap(now_ms - seen_ms)


@dataclass(frozen=True, slots=True)
class Group:
    """A group's offsets: topic -> partition -> (offset, metadata)."""

    name: str
    offsets: Mapping[str, Mapping[int, tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """A share group's start offsets: topic -> (its id, partition -> start offset)."""

    name: str
    starts: Mapping[str, tuple[UUID, Mapping[int, int]]]


def offset_gap(age_ms: int) -> int:
    """The offsets to leave out for an end that was seen so long ago."""
    return max(OFFSET_GAP, math.ceil(age_ms * RECORDS_PER_S / 1000))


Open = Callable[[str, str], str]
"""(sealed text, owner) -> text."""


def cluster_id(catalog: Catalog) -> str:
    """The id of the catalog's cluster. Raises UsageError without one."""
    row = catalog.get((Kind.CLUSTER, CLUSTER_ID))
    if row is None:
        raise UsageError("the catalog names no cluster: nothing was ever written to it")
    return str(row.value()["id"])


def topics(catalog: Catalog) -> list[RestoredTopic]:
    """Every topic of the catalog, by name."""
    committed = _committed_ends(groups(catalog))
    shared = share_groups(catalog)
    found = []
    for path, row in sorted(of_kind(catalog, Kind.TOPIC).items()):
        name, value = last_name(path), row.value()
        configs = _configs(catalog, name)
        topic_id = id_from_text(value["topic_id"])
        ends, epochs = _observed(catalog, name, topic_id)
        seen_ms = _seen_ms(catalog, row, ends)
        ends = {p: end for p, end in ends.items() if end != NEVER_SEEN}
        for partition, offset in committed.get(name, {}).items():
            ends[partition] = max(offset, ends.get(partition, 0))
        for partition, offset in _starts_of(shared, name, topic_id):
            ends[partition] = max(offset, ends.get(partition, 0))
        found.append(
            RestoredTopic(
                name,
                topic_id,
                configs,
                _replicas(value),
                value.get("is_tiered") is True or configs.get(ENABLE_KEY) == "true",
                epochs,
                ends,
                seen_ms,
            )
        )
    return found


def observed_at(catalog: Catalog) -> int:
    """When the log ends were last seen: the writer looks at all of them at once, and commits those
    that moved, or a heartbeat once a minute."""
    ends = of_kind(catalog, Kind.ENDS).values()
    beats = (row for row in (catalog.get((Kind.CLUSTER, CLUSTER_ID)),) if row)
    return max((row.time_ms for row in (*ends, *beats)), default=0)


def _seen_ms(catalog: Catalog, row: CatalogRow, ends: Mapping[int, int]) -> dict[int, int]:
    """Since when each partition of a topic may have given offsets that are not known.

    One that no look has found did not exist at the last one. One that never had a leader when it
    was looked at, as every one before the first look, may be older than the catalog: it is left
    out.
    """
    if not of_kind(catalog, Kind.ENDS):
        return {}
    looked_ms = observed_at(catalog)
    new_ms = min(looked_ms, row.time_ms)
    seen = [p for p in _replicas(row.value()) if ends.get(p) != NEVER_SEEN]
    return {p: looked_ms if p in ends else new_ms for p in seen}


def groups(catalog: Catalog) -> list[Group]:
    """Every group with offsets."""
    found = []
    for name, row in sorted(of_kind(catalog, Kind.GROUP).items()):
        offsets = {
            topic: {int(p): (int(at), str(text)) for p, (at, text) in rows.items()}
            for topic, rows in row.value()["offsets"].items()
        }
        found.append(Group(name, offsets))
    return found


def share_groups(catalog: Catalog) -> list[ShareGroup]:
    """Every share group with start offsets; none in a catalog of an older Headwater."""
    found = []
    for name, row in sorted(of_kind(catalog, Kind.SHARE_GROUP).items()):
        starts = {
            topic: (id_from_text(own["id"]), {int(p): int(at) for p, at in own["starts"].items()})
            for topic, own in row.value()["starts"].items()
        }
        found.append(ShareGroup(name, starts))
    return found


def broker_ids(found: list[RestoredTopic]) -> tuple[int, ...]:
    """The brokers that have replicas, or 0 without any topic."""
    ids = {b for topic in found for replicas in topic.replicas.values() for b in replicas}
    return tuple(sorted(ids or {0}))


def cluster_nodes(catalog: Catalog, open_sealed: Open | None) -> list[Node]:
    """The nodes beside topics: id, epochs, producer ids, users, quotas, ACLs, configs of groups and
    brokers.

    Without `open_sealed` users get no credentials. Cluster-wide configs keep groups waiting.
    """
    nodes = [Node(CLUSTER_ID, catalog[Kind.CLUSTER, CLUSTER_ID].json)]
    epoch = catalog.get((Kind.CONTROLLER, CONTROLLER_EPOCH))
    nodes.append(Node(CONTROLLER_EPOCH, str(int(epoch.json if epoch else "0") + EPOCH_GAP)))
    nodes.append(Node(PRODUCER_IDS, _producer_ids(catalog)))
    nodes += _user_nodes(catalog, open_sealed)
    for kind in (Kind.ACL, Kind.GROUP_CONFIG):
        nodes += [Node(path, row.json) for path, row in _rows(catalog, kind)]
    configs = {p: row.value().get("config", {}) for p, row in _rows(catalog, Kind.BROKER_CONFIG)}
    every = f"{BROKER_CONFIGS}/<default>"
    configs[every] = {**configs.get(every, {}), GROUPS_PENDING: "true"}
    nodes += [Node(p, _config(row), secret=True) for p, row in sorted(configs.items())]
    return nodes


def topic_nodes(topic: RestoredTopic) -> list[Node]:
    """The nodes of one topic; the one that makes it a topic comes last.

    A state without ISR: no replica exists yet, the controller's first election creates them.
    """
    nodes = [Node(f"{TOPIC_CONFIGS}/{topic.name}", _config(dict(topic.configs)))]
    for partition in sorted(topic.replicas):
        state = {
            "version": 1,
            "leader": NO_LEADER,
            "leader_epoch": topic.epochs.get(partition, 0) + EPOCH_GAP,
            "isr": [],
            "controller_epoch": 0,
            "directories": {},
        }
        path = f"{TOPICS}/{topic.name}/partitions/{partition}/state"
        nodes.append(Node(path, dump(state)))
    assignment = {
        "version": 3,
        "topic_id": id_text(topic.topic_id),
        "partitions": {str(p): list(brokers) for p, brokers in sorted(topic.replicas.items())},
        "adding_replicas": {},
        "removing_replicas": {},
        **({"is_tiered": True} if topic.is_tiered else {}),
    }
    nodes.append(Node(f"{TOPICS}/{topic.name}", json.dumps(assignment, separators=(",", ":"))))
    return nodes


def restored_offsets(
    group: Group, found: Mapping[str, tuple[RestoredTopic, Mapping[int, int]]]
) -> dict[tuple[str, int], tuple[int, str]]:
    """The offsets to commit; `found`: topic -> it and its first offsets.

    Records of a topic without a table are gone: its readers go on at the first new record, instead
    of where a reset policy sends them.
    """
    rows: dict[tuple[str, int], tuple[int, str]] = {}
    for name, offsets in group.offsets.items():
        if name not in found:
            continue
        topic, first = found[name]
        for partition, (offset, metadata) in offsets.items():
            if partition in topic.replicas:
                rows[name, partition] = (_goes_on_at(topic, offset, first[partition]), metadata)
    return rows


def restored_starts(
    group: ShareGroup, found: Mapping[str, tuple[RestoredTopic, Mapping[int, int]]]
) -> dict[tuple[str, int], int]:
    """The start offsets to set, as `restored_offsets`; none of an older topic of the name.

    A share group delivers everything from its start offset (KIP-932), so what was acquired or
    acknowledged above it is delivered again.
    """
    rows: dict[tuple[str, int], int] = {}
    for name, (topic_id, starts) in group.starts.items():
        topic, first = found.get(name, (None, {}))
        if topic is None or topic.topic_id != topic_id:
            continue
        for partition, start in starts.items():
            if partition in topic.replicas:
                rows[name, partition] = _goes_on_at(topic, start, first[partition])
    return rows


def _goes_on_at(topic: RestoredTopic, offset: int, first_new: int) -> int:
    """Where a group that stood at `offset` goes on."""
    return offset if topic.is_tiered else max(offset, first_new)


def _rows(catalog: Catalog, kind: Kind) -> list[tuple[str, Any]]:
    return sorted(of_kind(catalog, kind).items())


def _config(rows: Mapping[str, str]) -> str:
    return dump({"version": 1, "config": dict(rows)})


def _configs(catalog: Catalog, topic: str) -> dict[str, str]:
    row = catalog.get((Kind.TOPIC_CONFIG, f"{TOPIC_CONFIGS}/{topic}"))
    return {} if row is None else dict(row.value().get("config", {}))


def _replicas(value: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """Without the replicas of a reassignment that was under way: it is to be asked for again."""
    adding = {int(p): set(b) for p, b in value.get("adding_replicas", {}).items()}
    return {
        int(p): tuple(b for b in brokers if b not in adding.get(int(p), ())) or tuple(brokers)
        for p, brokers in value["partitions"].items()
    }


def _observed(
    catalog: Catalog, topic: str, topic_id: UUID
) -> tuple[dict[int, int], dict[int, int]]:
    """Log ends and leader epochs; none of an older topic of this name."""
    row = catalog.get((Kind.ENDS, topic))
    value = row.value() if row else {}
    if value.get("id") != id_text(topic_id):
        return {}, {}
    pairs = {int(p): (int(end), int(epoch)) for p, (end, epoch) in value["ends"].items()}
    epochs = {p: epoch for p, (_, epoch) in pairs.items() if epoch != NEVER_SEEN}
    return {p: end for p, (end, _) in pairs.items()}, epochs


def _committed_ends(found: list[Group]) -> dict[str, dict[int, int]]:
    ends: dict[str, dict[int, int]] = {}
    for group in found:
        for topic, offsets in group.offsets.items():
            of_topic = ends.setdefault(topic, {})
            for partition, (offset, _) in offsets.items():
                of_topic[partition] = max(offset, of_topic.get(partition, 0))
    return ends


def _starts_of(found: list[ShareGroup], topic: str, topic_id: UUID) -> list[tuple[int, int]]:
    """(partition, start offset) of each share group in a topic."""
    return [
        pair
        for group in found
        if topic in group.starts and group.starts[topic][0] == topic_id
        for pair in group.starts[topic][1].items()
    ]


def _producer_ids(catalog: Catalog) -> str:
    row = catalog.get((Kind.PRODUCER_IDS, PRODUCER_IDS))
    end = int(row.value()["block_end"]) if row else 0
    start = end + 1 + PRODUCER_ID_GAP
    block = {"block_start": str(start), "block_end": str(start + PRODUCER_ID_BLOCK - 1)}
    return dump({"version": 1, "broker": 0, **block})


def _user_nodes(catalog: Catalog, open_sealed: Open | None) -> list[Node]:
    configs = {p: row.value()["config"] for p, row in _rows(catalog, Kind.CLIENT_CONFIG)}
    if open_sealed is not None:
        for path, row in _rows(catalog, Kind.SCRAM):
            keys = json.loads(open_sealed(row.value()["sealed"], path))
            configs[path] = {**configs.get(path, {}), **keys}
    return [
        Node(path, _config(rows), secret=path.startswith(f"{USERS}/"))
        for path, rows in sorted(configs.items())
    ]
