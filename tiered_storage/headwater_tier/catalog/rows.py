"""The rows of the catalog, and which nodes of ZooKeeper they hold. Pure.

A row says how one thing was at one moment. The newest row of a (kind, name) counts; a `deleted` one
says that the thing is gone. Names of kinds that come from ZooKeeper are paths:

    cluster          /cluster/id
    controller       /controller_epoch
    producer_ids     /latest_producer_id_block
    topic            /brokers/topics/flights
    topic_config     /config/topics/flights
    broker_config    /config/brokers/<default>
    client_config    /config/users/alice/clients/app    quotas, without SCRAM keys
    group_config     /config/groups/app
    scram            /config/users/alice                SCRAM keys, sealed
    acl              /kafka-acl/Topic/flights
    ends             flights                            {"id":"mb7k..","ends":{"0":[600,3]}}; -1: a
                                                        partition never had a leader when looked at
    group            app                                {"offsets":{"flights":{"0":[42,"meta"]}}}
    share_group      packers                            {"starts":{"flights":{"id":"mb7k..",
                                                        "starts":{"0":42}}}}
    restore          mb7ktUyQRLqEOsuIwKHa3w             the cluster was restored from a version
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from headwater.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from headwater.wire.tier_status import TIER_GROUP


class Kind(Enum):
    """What a row is about."""

    CLUSTER = "cluster"
    CONTROLLER = "controller"
    PRODUCER_IDS = "producer_ids"
    TOPIC = "topic"
    TOPIC_CONFIG = "topic_config"
    BROKER_CONFIG = "broker_config"
    CLIENT_CONFIG = "client_config"
    GROUP_CONFIG = "group_config"
    SCRAM = "scram"
    ACL = "acl"
    ENDS = "ends"
    GROUP = "group"
    SHARE_GROUP = "share_group"
    RESTORE = "restore"


CLUSTER_ID = "/cluster/id"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/latest_producer_id_block"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
USERS = "/config/users"

ROOTS: Mapping[str, tuple[Kind, int]] = {
    CLUSTER_ID: (Kind.CLUSTER, 0),
    CONTROLLER_EPOCH: (Kind.CONTROLLER, 0),
    PRODUCER_IDS: (Kind.PRODUCER_IDS, 0),
    TOPICS: (Kind.TOPIC, 1),
    TOPIC_CONFIGS: (Kind.TOPIC_CONFIG, 1),
    BROKER_CONFIGS: (Kind.BROKER_CONFIG, 1),
    USERS: (Kind.CLIENT_CONFIG, 3),
    "/config/clients": (Kind.CLIENT_CONFIG, 1),
    "/config/ips": (Kind.CLIENT_CONFIG, 1),
    "/config/groups": (Kind.GROUP_CONFIG, 1),
    "/kafka-acl": (Kind.ACL, 2),
    "/kafka-acl-extended": (Kind.ACL, 3),
}
"""Tree of nodes -> kind of its rows, levels of children."""

ZNODE_KINDS = frozenset(kind for kind, _ in ROOTS.values()) | {Kind.SCRAM}
COORDINATOR_TOPICS = frozenset({OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC})
"""Not kept: a restored cluster makes them anew, out of the groups' rows."""
NOT_KEPT_GROUPS = frozenset({TIER_GROUP})
"""The tier services' own: its offsets are reports, which change all the time."""
SCRAM_PREFIX = "SCRAM-"
NEVER_SEEN = -1
"""Log end and leader epoch of a partition that had no leader at any look."""

Key = tuple[Kind, str]


@dataclass(frozen=True, slots=True)
class CatalogRow:
    """One row. `zxid`: of the node's last change; 0 for kinds that ZooKeeper does not hold."""

    kind: Kind
    name: str
    json: str
    deleted: bool = False
    controller_epoch: int = 0
    zxid: int = 0
    time_ms: int = 0

    @property
    def key(self) -> Key:
        """What the row is about."""
        return self.kind, self.name

    def value(self) -> dict[str, Any]:
        """The row's JSON object."""
        found: dict[str, Any] = json.loads(self.json)
        return found


Catalog = Mapping[Key, CatalogRow]
"""The newest row of each thing that is not deleted."""


def newest(rows: Iterable[CatalogRow]) -> dict[Key, CatalogRow]:
    """The catalog after these rows, oldest first."""
    found: dict[Key, CatalogRow] = {}
    for row in rows:
        if row.deleted:
            found.pop(row.key, None)
        else:
            found[row.key] = row
    return found


def of_kind(catalog: Catalog, kind: Kind) -> dict[str, CatalogRow]:
    """The rows of one kind by name."""
    return {name: row for (found, name), row in catalog.items() if found is kind}


def kind_of(path: str) -> Kind | None:
    """The kind of a node's row; None for a node that holds nothing by itself, as a root does."""
    for root, (kind, levels) in ROOTS.items():
        if path == root:
            return kind if levels == 0 else None
        if path.startswith(f"{root}/"):
            is_topics = kind in (Kind.TOPIC, Kind.TOPIC_CONFIG)
            is_kept = not is_topics or path[len(root) + 1 :] not in COORDINATOR_TOPICS
            return kind if is_kept else None
    return None


def last_name(path: str) -> str:
    """`/brokers/topics/flights` -> `flights`."""
    return path.rpartition("/")[2]


def dump(value: Mapping[str, Any]) -> str:
    """JSON in one form, so that equal values are equal text."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def split_scram(data: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """A user's config node as (quotas, SCRAM keys)."""
    try:
        config = json.loads(data or b"{}").get("config", {})
    except (ValueError, AttributeError):
        config = {}
    keys = {k: str(v) for k, v in config.items() if k.startswith(SCRAM_PREFIX)}
    return {k: str(v) for k, v in config.items() if k not in keys}, keys
