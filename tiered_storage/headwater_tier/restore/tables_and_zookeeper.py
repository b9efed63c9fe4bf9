"""The first half of a restore: tables and ZooKeeper, before any broker of the cluster starts.

Every step can be repeated: a restore that was killed anywhere goes on when it is run again. Its
state is in ZooKeeper, which is what it builds:

    /headwater/restore                {"version":1,"from":uri,"catalog_version":7,"state":"groups"}
    /headwater/restored/<topic id>    where each log starts, decided once (the brokers read it)

Nothing is written to a table before the offsets of its topic are decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from headwater.clock import Clock
from headwater.errors import UsageError
from headwater.ids import id_text
from headwater.local.zk_nodes import Znode
from headwater.security.store_options import StoreOptions
from headwater.wire.restore_names import RESTORED
from headwater_tier.catalog.rows import (
    BROKER_CONFIGS,
    CLUSTER_ID,
    TOPICS,
    CatalogRow,
    Kind,
    dump,
    of_kind,
)
from headwater_tier.catalog.table import CatalogTable, catalog_uri
from headwater_tier.delta import (
    Change,
    CommitUnknownError,
    LogTable,
    TableAccessError,
    TableStateError,
    table_exists,
)
from headwater_tier.fence_repair import repair
from headwater_tier.restore import restore_plan as plan
from headwater_tier.restore.restore_plan import Node, Open, RestoredTopic
from headwater_tier.table_names import TableLocation, table_uri

MARKER = "/headwater/restore"
COMMITS_MAX = 5
EMPTY_IF_NONE = (TOPICS, "/brokers/ids", "/config/topics", "/config/users")
"""A node below any of these: the ensemble holds a cluster."""


class Nodes(Protocol):
    """`ZooKeeperNodes`."""

    servers: str

    def get(self, path: str) -> Znode | None: ...

    def children(self, path: str) -> list[str]: ...

    def put(self, path: str, data: bytes, *, secret: bool = False) -> None: ...

    def create(self, path: str, data: bytes) -> bool: ...


class State(Enum):
    """How far a restore is."""

    METADATA = "metadata"
    GROUPS = "groups"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Source:
    """The base folder of the tables, and how to reach them."""

    base: str
    storage_options: StoreOptions = field(default=(), repr=False)

    def catalog(self, at: int | None = None) -> CatalogTable:
        """The catalog, of one version. Raises TableAccessError."""
        return CatalogTable(catalog_uri(self.base), dict(self.storage_options), at=at)

    def table(self, topic: RestoredTopic) -> TableLocation:
        """The log table of a topic."""
        uri = table_uri(topic.table_base or self.base, topic.name, topic.topic_id)
        return TableLocation(uri, topic.name, topic.topic_id, self.storage_options)


@dataclass(frozen=True, slots=True)
class MetadataReport:
    """What the first half has restored."""

    cluster_id: str
    catalog_version: int
    catalog_time_ms: int
    """Of the newest row: what happened later is lost."""
    observed_ms: int
    """When log ends were last seen: offsets that were given later are not known."""
    observed_age_ms: int
    topics: tuple[RestoredTopic, ...]
    first_offsets: Mapping[str, Mapping[int, int]]
    groups: tuple[plan.Group, ...]
    share_groups: tuple[plan.ShareGroup, ...]
    users_left_out: int
    """SCRAM users whose keys cannot be opened without the catalog's key."""

    @property
    def without_records(self) -> list[str]:
        """Topics that were not tiered: their records are lost."""
        return [topic.name for topic in self.topics if not topic.is_tiered]


class MetadataRestore:
    """Restores tables and ZooKeeper. `run` may be repeated until the restore is done."""

    def __init__(
        self,
        nodes: Nodes,
        source: Source,
        clock: Clock,
        open_sealed: Open | None = None,
        gap: int | None = None,
        *,
        repairs: bool = False,
    ) -> None:
        """Without `open_sealed` no SCRAM user is restored. `gap`: offsets left out per log;
        without it, by the age of each end's last observation. `repairs`: accept the rows of tables
        that somebody else has changed."""
        self._repairs = repairs
        self._nodes, self._source, self._clock = nodes, source, clock
        self._open, self._gap = open_sealed, gap

    def run(self) -> MetadataReport:
        """Raises UsageError for an ensemble that is not empty, or a restore that is done."""
        table = self._source.catalog()
        marker = self._begin(table)
        pinned = self._source.catalog(at=int(marker["catalog_version"]))
        catalog = pinned.catalog()
        topics = plan.topics(catalog)
        self._check_tables(topics)
        first = {topic.name: self._decide(topic) for topic in topics}
        if marker["state"] == State.METADATA.value:
            self._check_no_broker()
            for topic in topics:
                if topic.is_tiered:
                    self._raise_ends(topic, first[topic.name])
            self._record(table, topics, first, marker)
            self._write(plan.cluster_nodes(catalog, self._open))
            for topic in topics:
                self._write(plan.topic_nodes(topic))
            self.set_state(State.GROUPS)
        sealed = len(of_kind(catalog, Kind.SCRAM))
        return MetadataReport(
            plan.cluster_id(catalog),
            pinned.version,
            max((row.time_ms for row in catalog.values()), default=0),
            plan.observed_at(catalog),
            max(0, self._clock.now_ms() - plan.observed_at(catalog)),
            tuple(topics),
            first,
            tuple(plan.groups(catalog)),
            tuple(plan.share_groups(catalog)),
            0 if self._open is not None else sealed,
        )

    def set_state(self, state: State) -> None:
        """Record how far the restore is."""
        self._put_marker({**self._marker(), "state": state.value})

    def _begin(self, table: CatalogTable) -> dict[str, Any]:
        """The marker of this restore: an earlier run's, or a new one in an empty ensemble."""
        found = self._nodes.get(MARKER)
        if found is None:
            self._check_empty()
            own = plan.cluster_id(table.catalog())
            marker = {
                "version": 1,
                "from": self._source.base,
                "cluster_id": own,
                "catalog_version": table.version,
                "state": State.METADATA.value,
            }
            self._put_marker(marker)
            return marker
        marker = self._marker()
        if marker["from"] != self._source.base:
            raise UsageError(
                f"ZooKeeper at {self._nodes.servers} is being restored from {marker['from']}: give"
                " that as --from, or an empty ensemble"
            )
        if marker["state"] == State.DONE.value:
            raise UsageError(
                f"ZooKeeper at {self._nodes.servers} holds a cluster that was restored already:"
                " restore needs an empty ensemble"
            )
        return marker

    def _check_empty(self) -> None:
        names = [f"{p}/{name}" for p in EMPTY_IF_NONE for name in self._nodes.children(p)]
        if self._nodes.get(CLUSTER_ID) is not None:
            names.append(CLUSTER_ID)
        if names:
            raise UsageError(
                f"ZooKeeper at {self._nodes.servers} is not empty, it has {names[0]}: restore makes"
                " a cluster anew and needs an empty ensemble, or another chroot"
            )

    def _check_no_broker(self) -> None:
        if self._nodes.children("/brokers/ids"):
            raise UsageError(
                f"brokers run on ZooKeeper at {self._nodes.servers} before its topics are restored:"
                " stop them, run this command again, then start them"
            )

    def _check_tables(self, topics: list[RestoredTopic]) -> None:
        """Raise UsageError for tables that fail their checks, before anything is decided."""
        problems = []
        for topic in topics:
            location = self._source.table(topic)
            if not topic.is_tiered or not table_exists(location):
                continue
            try:
                LogTable(location)
            except TableStateError as error:
                if self._repairs:
                    repair(location, clock=self._clock)
                else:
                    problems.append(str(error).partition(" Tiering of this topic")[0])
        if problems:
            raise UsageError(
                f"{len(problems)} tables fail their checks. {problems[0]} Run again with"
                " --repair-tables to accept their rows as they are, or restore a version of the"
                " table before that"
            )

    def _decide(self, topic: RestoredTopic) -> dict[int, int]:
        """Where the topic's logs start: decided by the first run, kept by later ones."""
        path = f"{RESTORED}/{id_text(topic.topic_id)}"
        found = self._nodes.get(path)
        if found is None:
            tiered = self._tiered_ends(topic)
            ends = topic.first_offsets(tiered, self._clock.now_ms(), self._gap)
            row = {"version": 1, "topic": topic.name, "ends": {str(p): e for p, e in ends.items()}}
            self._nodes.put(path, dump(row).encode())
            return ends
        return {int(p): int(end) for p, end in json.loads(found.data)["ends"].items()}

    def _tiered_ends(self, topic: RestoredTopic) -> Mapping[int, int]:
        location = self._source.table(topic)
        if not topic.is_tiered or not table_exists(location):
            return {}
        return LogTable(location).snapshot.ends

    def _raise_ends(self, topic: RestoredTopic, first: Mapping[int, int]) -> None:
        """Move the table's ends to where the logs start. Tiering goes on from there, and a tier job
        of the lost cluster that still runs is fenced."""
        location = self._source.table(topic)
        error: CommitUnknownError | None = None
        for _ in range(COMMITS_MAX):
            table = LogTable.create(location, len(topic.replicas))
            ends = table.snapshot.ends
            behind = {p: end for p, end in first.items() if ends.get(p, -1) < end}
            if not behind:
                return
            starts = {p: end for p, end in behind.items() if p not in ends}
            change = Change("restore", self._clock.now_ms(), ends=behind, starts=starts)
            try:
                table.commit(change)
            except CommitUnknownError as unknown:
                error = unknown
        raise TableAccessError(f"{COMMITS_MAX} commits to {location.uri} failed: {error}")

    def _record(
        self,
        table: CatalogTable,
        topics: list[RestoredTopic],
        first: Mapping[str, Mapping[int, int]],
        marker: Mapping[str, Any],
    ) -> None:
        """Note the new ends in the catalog: a second restore right after this one starts above."""
        catalog, rows = table.catalog(), []
        now_ms = self._clock.now_ms()
        for topic in topics:
            ends = {
                str(p): [end, topic.epochs.get(p, 0) + plan.EPOCH_GAP]
                for p, end in first[topic.name].items()
            }
            text = dump({"id": id_text(topic.topic_id), "ends": ends})
            known = catalog.get((Kind.ENDS, topic.name))
            if known is None or known.json != text:
                rows.append(CatalogRow(Kind.ENDS, topic.name, text, time_ms=now_ms))
        name = f"{marker['cluster_id']}-{marker['catalog_version']}"
        if (Kind.RESTORE, name) not in catalog:
            text = dump({"from_version": marker["catalog_version"]})
            rows.append(CatalogRow(Kind.RESTORE, name, text, time_ms=now_ms))
        if rows:
            table.append(rows)

    def _write(self, nodes: list[Node]) -> None:
        for node in nodes:
            secret = node.secret or node.path.startswith(BROKER_CONFIGS)
            self._nodes.put(node.path, node.data.encode(), secret=secret)

    def _marker(self) -> dict[str, Any]:
        found = self._nodes.get(MARKER)
        if found is None:
            raise UsageError(f"no restore has begun on ZooKeeper at {self._nodes.servers}")
        marker: dict[str, Any] = json.loads(found.data)
        return marker

    def _put_marker(self, marker: Mapping[str, Any]) -> None:
        self._nodes.put(MARKER, json.dumps(marker, separators=(",", ":")).encode())
