"""Keeps the catalog up to date, beside the tier service: never on the path of a request.

Changes of ZooKeeper's nodes are committed at the next tick; log ends, leader epochs and group
offsets every OBSERVE_EVERY_S. Two writers are harmless: each row is the state itself, and a writer
that was overtaken compares with the table again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from headwater.clock import Clock
from headwater.config.keys import broker_key
from headwater.entropy import Entropy
from headwater.errors import HeadwaterError, UsageError
from headwater.ids import id_from_text
from headwater.local.zk_nodes import Znode
from headwater.wire.restore_names import GROUPS_PENDING
from headwater_tier.catalog.observer import merged_ends
from headwater_tier.catalog.rows import (
    BROKER_CONFIGS,
    CLUSTER_ID,
    TOPICS,
    USERS,
    ZNODE_KINDS,
    CatalogRow,
    Key,
    Kind,
    dump,
    kind_of,
    newest,
    split_scram,
)
from headwater_tier.catalog.table import FILES_MAX, CatalogOvertakenError, CatalogTable

logger = logging.getLogger(__name__)

OBSERVE_EVERY_S = 5.0
HEARTBEAT_EVERY_S = 60.0
GROUP_KINDS = frozenset({Kind.GROUP, Kind.SHARE_GROUP})
"""Read at one look."""


class Nodes(Protocol):
    """`ZooKeeperMirror`."""

    unreadable: set[str]

    def changed(self) -> dict[str, Znode | None]: ...


class Observer(Protocol):
    """`BrokerObserver`."""

    def ends(self) -> dict[Key, str]: ...

    def groups(self) -> dict[Key, str]: ...


class Seal(Protocol):
    """`Sealer`."""

    def seal(self, text: str, owner: str) -> str: ...

    def open(self, sealed: str, owner: str) -> str: ...


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """How the catalog stands, for status and metrics."""

    uri: str
    version: int
    committed_ms: int
    """Time of the last look that found the catalog up to date."""
    keeps_credentials: bool
    """False without a key: users of SCRAM are then not restored."""
    unreadable: tuple[str, ...] = ()
    """Nodes that belong to other credentials than those of this process."""
    last_error: str = ""


@dataclass(slots=True)
class _Seen:
    """What was read and is perhaps not committed yet."""

    nodes: dict[Key, CatalogRow] = field(default_factory=dict)
    is_whole: bool = False
    """All nodes were read since the start, so what is missing here is gone."""
    observed: dict[Key, str] = field(default_factory=dict)
    observed_kinds: set[Kind] = field(default_factory=set)


class CatalogWriter:
    """Compares what is with what the catalog says, and commits the difference. One thread."""

    def __init__(
        self,
        table: CatalogTable,
        nodes: Nodes,
        observer: Observer,
        clock: Clock,
        entropy: Entropy,
        sealer: Seal | None = None,
    ) -> None:
        """Without a `sealer` the users' SCRAM keys are not kept."""
        self._table, self._nodes, self._observer = table, nodes, observer
        self._clock, self._entropy, self._sealer = clock, entropy, sealer
        self._catalog = table.catalog()
        self._seen = _Seen()
        self._observed_at = float("-inf")
        self._looked_at = float("-inf")
        """When log ends were read, as against `_observed_at`, when that was tried."""
        self._looked_ms = 0
        """The same as a time of day: what was given since then is not in the ends."""
        self._attested_at = float("-inf")
        """When a row said that log ends were read. Rows of nodes do not say so."""
        self._committed_ms = 0
        self._is_settled = False
        """All that was read is committed."""
        self._error = ""

    @property
    def status(self) -> CatalogStatus:
        """How the catalog stands."""
        unreadable = tuple(sorted(self._nodes.unreadable))
        return CatalogStatus(
            self._table.uri,
            self._table.version,
            self._committed_ms,
            self._sealer is not None,
            unreadable,
            self._error,
        )

    @property
    def last_error(self) -> str:
        """Why the last tick did not commit all; empty if it did."""
        return self._error

    def has_topic(self, topic: str, topic_id: UUID) -> bool:
        """True once the topic's row is committed: its first log commit waits for it."""
        row = self._catalog.get((Kind.TOPIC, f"/brokers/topics/{topic}"))
        if row is None:
            return False
        text = row.value().get("topic_id")
        return text is not None and id_from_text(text) == topic_id

    def tick(self) -> int:
        """Commit what changed; the number of rows. Errors of brokers and storage are kept in
        `status`, and the next tick tries again. Raises UsageError for the catalog of another
        cluster."""
        try:
            rows = self._tick()
        except UsageError:
            raise
        except HeadwaterError as error:
            if str(error) != self._error:
                logger.warning("the catalog is not up to date: %s", error)
            self._error = str(error)
            return 0
        self._error = ""
        return rows

    def _tick(self) -> int:
        changed = self._nodes.changed()
        now = self._clock.monotonic()
        is_due = now - self._observed_at >= OBSERVE_EVERY_S
        if not (changed or is_due) and self._is_settled:
            return 0
        self._is_settled = False
        self._take_nodes(changed)
        silent: HeadwaterError | None = None
        if is_due:
            self._observed_at = now
            try:
                self._take_observed()
            except HeadwaterError as error:  # the changes of nodes are committed nevertheless
                silent = error
        rows = self._difference()
        if not any(row.kind is Kind.ENDS for row in rows):
            rows += self._beat(now, rows)
        is_known = self._commit(rows) if rows else True
        if any(row.kind in (Kind.ENDS, Kind.CLUSTER) for row in rows):  # by this writer or another
            self._attested_at = now
        if silent is not None:
            raise silent
        self._committed_ms = self._clock.now_ms()
        self._is_settled = is_known
        return len(rows)

    def _beat(self, now: float, rows: list[CatalogRow]) -> list[CatalogRow]:
        """A row without news each minute: when the log ends of an idle cluster were last seen. None
        while they cannot be read: a restore must know that."""
        row = self._catalog.get((Kind.CLUSTER, CLUSTER_ID))
        is_due = now - self._attested_at >= HEARTBEAT_EVERY_S and self._looked_at == now
        if row is None or not is_due or any(found.key == row.key for found in rows):
            return []
        return [replace(row, time_ms=self._looked_ms)]

    def _take_nodes(self, changed: Mapping[str, Znode | None]) -> None:
        for path, node in changed.items():
            kind = kind_of(path)
            if kind is None or self._is_hidden(path):
                continue
            for found, text in self._values(kind, path, node):
                self._seen.nodes[found, path] = CatalogRow(
                    found, path, text, deleted=not text, zxid=node.zxid if node else 0
                )
        self._seen.is_whole = True

    def _values(self, kind: Kind, path: str, node: Znode | None) -> Iterable[tuple[Kind, str]]:
        """The rows of a node as (kind, JSON); empty JSON: there is none, or no longer."""
        if kind is Kind.CLIENT_CONFIG and path.startswith(f"{USERS}/"):
            quotas, keys = split_scram(node.data if node else b"")
            yield kind, dump({"version": 1, "config": quotas}) if quotas else ""
            if self._sealer is not None:
                yield Kind.SCRAM, dump(keys) if keys else ""
            return
        text = node.data.decode(errors="replace") if node else ""
        if kind is Kind.BROKER_CONFIG and text:
            text = _without_passwords(text)
        yield kind, text

    def _sealed(self, sealer: Seal, plain: CatalogRow) -> CatalogRow | None:
        """A user's row with sealed keys; None if the catalog's holds the same. Each sealing
        differs, so they are compared open."""
        known = self._catalog.get(plain.key)
        if known is not None:
            try:
                if sealer.open(known.value()["sealed"], plain.name) == plain.json:
                    return None
            except UsageError:
                logger.info("%s was sealed with a former key: sealing it again", plain.name)
        return replace(plain, json=dump({"sealed": sealer.seal(plain.json, plain.name)}))

    def _take_observed(self) -> None:
        readers: dict[frozenset[Kind], Callable[[], dict[Key, str]]] = {
            frozenset({Kind.ENDS}): self._observer.ends,
            GROUP_KINDS: self._observer.groups,
        }
        if self._awaits_groups():
            del readers[GROUP_KINDS]  # the brokers of a restored cluster do not have them yet
        for kinds, read in readers.items():
            asked_ms = self._clock.now_ms()
            found = read()
            if Kind.ENDS in kinds:
                self._looked_at, self._looked_ms = self._observed_at, asked_ms
            for key in [k for k in self._seen.observed if k[0] in kinds]:
                del self._seen.observed[key]
            self._seen.observed.update(found)
            self._seen.observed_kinds |= kinds

    def _awaits_groups(self) -> bool:
        """True between the halves of a restore."""
        row = self._seen.nodes.get((Kind.BROKER_CONFIG, f"{BROKER_CONFIGS}/<default>"))
        config = {} if row is None or row.deleted else row.value().get("config", {})
        return config.get(GROUPS_PENDING) == "true"

    def _difference(self) -> list[CatalogRow]:
        rows = [found for row in self._seen.nodes.values() if (found := self._news(row))]
        for key, text in self._seen.observed.items():
            known = self._catalog.get(key)
            if key[0] is Kind.ENDS:
                text = merged_ends(known.json if known else None, text)
            if known is None or known.json != text:
                rows.append(CatalogRow(*key, text))
        rows += [CatalogRow(*key, "", deleted=True) for key in self._catalog if self._is_gone(key)]
        return [self._stamped(row) for row in rows]

    def _news(self, row: CatalogRow) -> CatalogRow | None:
        """The row to commit for what was read; None if the catalog says so already."""
        known = self._catalog.get(row.key)
        if row.deleted:
            return None if known is None else row
        if row.kind is Kind.SCRAM and self._sealer is not None:
            return self._sealed(self._sealer, row)
        return None if known is not None and known.json == row.json else row

    def _is_gone(self, key: Key) -> bool:
        """True for a thing of the catalog that was not found where it would be."""
        kind, name = key
        if kind in self._seen.observed_kinds and key not in self._seen.observed:
            # A broker that does not know a topic yet does not end it.
            topic = self._seen.nodes.get((Kind.TOPIC, f"{TOPICS}/{name}"))
            return kind is not Kind.ENDS or topic is None or topic.deleted
        if kind not in ZNODE_KINDS or not self._seen.is_whole or self._is_hidden(name):
            return False
        is_kept = kind is not Kind.SCRAM or self._sealer is not None
        return is_kept and key not in self._seen.nodes

    def _is_hidden(self, path: str) -> bool:
        """True for a node that this process may not read: it may exist."""
        return any(path == p or path.startswith(f"{p}/") for p in self._nodes.unreadable)

    def _stamped(self, row: CatalogRow) -> CatalogRow:
        epoch = self._seen.nodes.get((Kind.CONTROLLER, "/controller_epoch"))
        number = int(epoch.json) if epoch and epoch.json.isdecimal() else 0
        time_ms = self._looked_ms if row.kind is Kind.ENDS else self._clock.now_ms()
        return replace(row, controller_epoch=number, time_ms=time_ms)

    def _commit(self, rows: list[CatalogRow]) -> bool:
        """False when another writer committed first: then all is compared again."""
        self._check_cluster()
        try:
            self._table.append(rows)
        except CatalogOvertakenError as error:
            logger.info("%s: comparing again", error)
            self._catalog = self._table.catalog()
            return False
        self._catalog = newest([*self._catalog.values(), *rows])
        if self._table.files > FILES_MAX:
            self._table.fold(self._entropy, self._clock.now_ms())
        return True

    def _check_cluster(self) -> None:
        key = (Kind.CLUSTER, CLUSTER_ID)
        known, own = self._catalog.get(key), self._seen.nodes.get(key)
        if known and own and own.deleted:
            raise HeadwaterError(
                f"ZooKeeper has no {CLUSTER_ID} any more, its data is lost: the catalog"
                f" {self._table.uri} of cluster {known.value()['id']} stays as it is, for"
                " `headwater restore`"
            )
        if known and own and not own.deleted and known.value()["id"] != own.value()["id"]:
            raise UsageError(
                f"{self._table.uri} is the catalog of cluster {known.value()['id']}, not of"
                f" {own.value()['id']}: give each cluster its own headwater.tables.uri"
            )


def _without_passwords(text: str) -> str:
    """A broker's dynamic configs without values that are secrets."""
    document = json.loads(text)
    config = document.get("config", {})
    kept = {k: v for k, v in config.items() if not _is_password(k)}
    return dump({**document, "config": kept})


def _is_password(name: str) -> bool:
    try:
        return broker_key(name).is_sensitive
    except UsageError:
        return True  # unknown here: better lost than shown
