"""All ZooKeeper paths and the JSON of their nodes, in Kafka's layout.

    /cluster/id                                   {"version":"1","id":"<base64url uuid>"}
    /controller                    (ephemeral)    {"version":2,"brokerid":1,"timestamp":"ms", ...}
    /controller_epoch                             7
    /brokers/ids/1                 (ephemeral)    BrokerRegistration
    /brokers/topics/T                             TopicAssignment (version 3, KIP-516, KIP-455)
    /brokers/topics/T/partitions/0/state          PartitionRecord (node version: partition epoch)
    /admin/delete_topics/T                        request of an old tool to delete a topic
    /admin/reassign_partitions                    request of an old tool to reassign partitions
    /admin/preferred_replica_election             request of an old tool to elect leaders
    /config/topics/T, /config/brokers/1           Overrides
    /config/users/U/clients/C, /config/ips/A      Overrides: client quotas (config.quota_precedence)
    /config/groups/G                              Overrides: group configs (KIP-848), name encoded
    /config/changes/config_change_0000000001      a tool edited configs
    /log_dir_event_notification/log_dir_event_000  a disk of a running broker failed (KIP-112)
    /latest_producer_id_block                     ProducerIdBlock
    /headwater/lives/1                            LastRegistration: as the controller last saw it
    /headwater/deletions/<topic id>               Deletion: replicas that are still to be deleted

Readers accept keys in any order and ignore unknown ones. So a key that old brokers can do without
is added without a new version (an old controller that rewrites the node drops it). Any other change
raises the version, and readers refuse newer versions (docs/versions.md). `/headwater/*` is not in
Kafka: its ZooKeeper mode had no directory ids (KIP-858), and kept a deleted topic until every
replica was back.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from headwater.config.quota_precedence import encoded
from headwater.errors import HeadwaterError
from headwater.ids import id_from_text, id_text
from headwater.wire.control import BrokerEndpoint
from headwater_broker.metadata.znode_acls import SESSIONS
from headwater_broker.metadata.znode_json import GARBLED, dump, parse

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
DELETE_REQUESTS = "/admin/delete_topics"
REASSIGN_REQUEST = "/admin/reassign_partitions"
PREFERRED_REQUEST = "/admin/preferred_replica_election"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
QUOTA_CONFIGS = ("/config/users", "/config/clients", "/config/ips")
GROUP_CONFIGS = "/config/groups"
ALL_BROKERS = "<default>"
CONFIG_CHANGES = "/config/changes"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_IDS = "/latest_producer_id_block"
DELEGATION_TOKENS = ("/delegation_token/tokens", "/delegation_token/token_changes")
LAST_REGISTRATIONS = "/headwater/lives"
DELETIONS = "/headwater/deletions"

PERSISTENT_PATHS = (
    "/cluster",
    BROKERS,
    TOPICS,
    DELETE_REQUESTS,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    *QUOTA_CONFIGS,
    GROUP_CONFIGS,
    CONFIG_CHANGES,
    LOG_DIR_EVENTS,
    *DELEGATION_TOKENS,
    LAST_REGISTRATIONS,
    DELETIONS,
    SESSIONS,
)
"""Created by the first broker or controller."""

REGISTRATION_VERSION = 5
REGISTRATION_FORMAT = 1
"""Version of the registration's keys that Kafka does not have."""
CONTROLLER_VERSION = 2
TOPIC_VERSION = 3
VERSION_DIGITS_MAX = 9
NO_DIRECTORY = UUID(int=0)
UNKNOWN_MIN_INSYNC_REPLICAS = 1
"""For brokers of an older version, which do not report theirs: such a leader may commit alone."""
PRODUCER_IDS_END = 2**62
"""Upper limit of producer ids, which are int64: a block beyond it is not valid."""


class ZnodeError(HeadwaterError):
    """The data of a node is not valid. The message names the path."""


class NewerVersionError(ZnodeError):
    """A newer Headwater wrote the node: a broker that cannot read it must not be the controller."""


def broker_path(broker_id: int) -> str:
    """`/brokers/ids/1`."""
    return f"{BROKERS}/{broker_id}"


def topic_path(topic: str) -> str:
    """`/brokers/topics/T`."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """`/brokers/topics/T/partitions`."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """`/brokers/topics/T/partitions/0`."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """`/brokers/topics/T/partitions/0/state`."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """`/config/topics/T`."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker: str) -> str:
    """`/config/brokers/1`, or for the empty name `/config/brokers/<default>`."""
    return f"{BROKER_CONFIGS}/{broker or ALL_BROKERS}"


def group_config_path(group_id: str) -> str:
    """`/config/groups/G`; a group id may hold any character, so it is percent-encoded."""
    return f"{GROUP_CONFIGS}/{encoded(group_id)}"


def broker_of_config(name: str) -> str | None:
    """The broker id in a node's name below `/config/brokers`; empty for all brokers; else None."""
    if name == ALL_BROKERS:
        return ""
    return name if name.isascii() and name.isdigit() else None


def delete_request_path(topic: str) -> str:
    """`/admin/delete_topics/T`."""
    return f"{DELETE_REQUESTS}/{topic}"


def deletion_path(topic_id: UUID) -> str:
    """`/headwater/deletions/<topic id>`."""
    return f"{DELETIONS}/{id_text(topic_id)}"


def last_registration_path(broker_id: int) -> str:
    """`/headwater/lives/1`."""
    return f"{LAST_REGISTRATIONS}/{broker_id}"


@lru_cache(maxsize=1024)
def uuid_from_text(text: str) -> UUID:
    """The inverse of `id_text`. Raises ZnodeError. Equal ids give the same object: comparisons are
    cheap, and thousands of partitions name the same few directories."""
    try:
        return id_from_text(text)
    except ValueError as e:
        raise ZnodeError(f"not an id in base64url: {text!r}") from e


def load(kind: str, data: bytes, newest: int = 1) -> dict[str, Any]:
    """A node's JSON object, of a version up to `newest`. Raises ZnodeError, NewerVersionError."""
    try:
        value = parse(data)
    except ValueError as e:
        raise ZnodeError(f"{kind}: not JSON: {data[:80]!r}") from e
    if not isinstance(value, dict):
        raise ZnodeError(f"{kind}: not a JSON object: {data[:80]!r}")
    _check_version(kind, value, "version", newest)
    return value


def _check_version(kind: str, value: Mapping[str, Any], key: str, newest: int) -> None:
    """A missing version counts as 1, as old tools write it."""
    version = value.get(key, 1)
    number = str(version) if isinstance(version, int | str) else ""
    if not number.isdecimal() or len(number) > VERSION_DIGITS_MAX or int(number) > newest:
        text = f"{kind}: {key} {reprlib.repr(version)}, this broker reads up to {newest}: "
        raise NewerVersionError(text + "run the newer Headwater that wrote it on this broker, too")


def _int_map(value: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    return {int(k): tuple(int(b) for b in v) for k, v in value.items()}


def _text_map(value: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(k): list(value[k]) for k in sorted(value)}


@contextmanager
def _reading(path: str, what: str) -> Iterator[None]:
    """Turn a decoder's exceptions into ZnodeError."""
    try:
        yield
    except GARBLED as e:
        raise ZnodeError(f"{path}: not {what}: {e!r}") from e


def encode_cluster_id(cluster_id: str) -> bytes:
    """The data of `/cluster/id` (Kafka writes its version as a string)."""
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The id in `/cluster/id`. Raises ZnodeError."""
    with _reading(CLUSTER_ID, "a cluster id"):
        return str(load(CLUSTER_ID, data)["id"])


@dataclass(frozen=True, slots=True)
class ControllerClaim:
    """The data of `/controller`. `control_address` saves a read of the broker's registration."""

    broker_id: int
    timestamp_ms: int
    control_address: str

    def encode(self) -> bytes:
        """As JSON."""
        row = {"version": CONTROLLER_VERSION, "brokerid": self.broker_id}
        when, address = str(self.timestamp_ms), self.control_address
        return dump({**row, "timestamp": when, "control_address": address})

    @classmethod
    def decode(cls, data: bytes) -> ControllerClaim:
        """From JSON, or from the bare integer of Kafka's oldest form. Raises ZnodeError."""
        with _reading(CONTROLLER, "a controller's registration"):
            if data.strip().isdigit():
                return cls(int(data), -1, "")
            row = load(CONTROLLER, data, CONTROLLER_VERSION)
            address = str(row.get("control_address", ""))
            return cls(int(row["brokerid"]), int(row.get("timestamp", -1)), address)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """The registration of a live broker. Its broker epoch is the node's czxid (KIP-380).

    `boot_id` is the kernel's. `clean_shutdown_epoch`: the last broker epoch, if it ended with a
    clean-shutdown mark on all disks, else -1 (KIP-966). `min_insync_replicas` comes from the
    broker's own settings, and applies to topics without an override.
    """

    broker_id: int
    cluster_id: str
    endpoints: tuple[BrokerEndpoint, ...]
    control_address: str
    rack: str | None = None
    directory_ids: tuple[UUID, ...] = ()
    boot_id: str = ""
    clean_shutdown_epoch: int = -1
    min_insync_replicas: int = UNKNOWN_MIN_INSYNC_REPLICAS
    timestamp_ms: int = -1
    log_format: int = REGISTRATION_FORMAT
    session_password: str = ""
    """In hex, of brokers that have not moved it to `session_znodes`."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """The security protocol of each listener; a listener without one is named like its own."""
    has_store_credentials: bool = False
    """True when the broker shows credentials to ZooKeeper: nodes may belong to them."""

    def encode(self) -> bytes:
        """As JSON, with Kafka's keys and the additional ones."""
        first = self.endpoints[0] if self.endpoints else None
        return dump(
            {
                "version": REGISTRATION_VERSION,
                "host": first.host if first else None,
                "port": first.port if first else -1,
                "jmx_port": -1,  # there is no JVM; readers of Kafka's nodes require the key
                "timestamp": str(self.timestamp_ms),
                "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in self.endpoints],
                "listener_security_protocol_map": {
                    e.listener: self.protocols.get(e.listener, e.listener) for e in self.endpoints
                },
                "rack": self.rack,
                "features": {},
                "control_address": self.control_address,
                "directory_ids": [id_text(d) for d in self.directory_ids],
                "boot_id": self.boot_id,
                "clean_shutdown_epoch": self.clean_shutdown_epoch,
                "min_insync_replicas": self.min_insync_replicas,
                "cluster_id": self.cluster_id,
                "format": self.log_format,
                "store_credentials": self.has_store_credentials,
            }
        )

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> BrokerRegistration:
        """From JSON. Raises ZnodeError."""
        row = load(broker_path(broker_id), data, REGISTRATION_VERSION)
        _check_version(broker_path(broker_id), row, "format", REGISTRATION_FORMAT)
        with _reading(broker_path(broker_id), "a registration of Headwater"):
            return cls(
                broker_id=broker_id,
                cluster_id=str(row["cluster_id"]),
                endpoints=tuple(_endpoint(text) for text in row["endpoints"]),
                control_address=str(row["control_address"]),
                rack=None if (rack := row.get("rack")) is None else str(rack),
                directory_ids=tuple(uuid_from_text(d) for d in row["directory_ids"]),
                boot_id=str(row["boot_id"]),
                clean_shutdown_epoch=int(row["clean_shutdown_epoch"]),
                min_insync_replicas=int(
                    row.get("min_insync_replicas", UNKNOWN_MIN_INSYNC_REPLICAS)
                ),
                timestamp_ms=int(row.get("timestamp", -1)),
                log_format=int(row["format"]),
                session_password=str(row.get("session_password", "")),
                protocols={
                    str(name): str(protocol)
                    for name, protocol in row.get("listener_security_protocol_map", {}).items()
                },
                has_store_credentials=row.get("store_credentials") is True,
            )


def _endpoint(text: str) -> BrokerEndpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return BrokerEndpoint(listener=listener, host=host, port=int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """The replicas of each partition; the first one is the preferred leader.

    `is_tiered`: `remote.storage.enable` was set, and no edit of the config node can undo it.
    """

    topic_id: UUID
    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    is_tiered: bool = False

    def encode(self) -> bytes:
        """As JSON, version 3."""
        return dump(
            {
                "version": TOPIC_VERSION,
                "topic_id": id_text(self.topic_id),
                "partitions": _text_map(self.partitions),
                "adding_replicas": _text_map(self.adding),
                "removing_replicas": _text_map(self.removing),
                **({"is_tiered": True} if self.is_tiered else {}),
            }
        )

    @classmethod
    def decode(cls, topic: str, data: bytes) -> TopicAssignment:
        """From JSON. Versions 1 and 2 lack the topic id: then it is zero."""
        row = load(topic_path(topic), data, TOPIC_VERSION)
        with _reading(topic_path(topic), "an assignment"):
            text = row.get("topic_id")
            return cls(
                topic_id=uuid_from_text(text) if text else NO_DIRECTORY,
                partitions=_int_map(row["partitions"]),
                adding=_int_map(row.get("adding_replicas", {})),
                removing=_int_map(row.get("removing_replicas", {})),
                is_tiered=row.get("is_tiered") is True,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """Leader and ISR of one partition. `leader` -1: offline.

    `elr`: replicas that left the ISR when it fell below min.insync.replicas. Nothing was committed
    since, so each still has all committed records and is eligible to lead (KIP-966).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    directories: Mapping[int, UUID] = field(default_factory=dict)
    elr: tuple[int, ...] = ()
    uncreated: tuple[int, ...] = ()
    """Brokers that have not confirmed the creation of their replica; they may not know of it."""

    def encode(self) -> bytes:
        """As JSON."""
        rows = {str(b): id_text(d) for b, d in sorted(self.directories.items())}
        return dump(
            {
                "version": 1,
                "leader": self.leader,
                "leader_epoch": self.leader_epoch,
                "isr": list(self.isr),
                "controller_epoch": self.controller_epoch,
                "directories": rows,
                **({"elr": list(self.elr)} if self.elr else {}),
                **({"unmade": list(self.uncreated)} if self.uncreated else {}),
            }
        )

    @classmethod
    def decode(cls, path: str, data: bytes) -> PartitionRecord:
        """From JSON. Raises ZnodeError."""
        row = load(path, data)
        with _reading(path, "a partition state"):
            rows = row.get("directories", {})
            return cls(
                leader=int(row["leader"]),
                leader_epoch=int(row["leader_epoch"]),
                isr=tuple(int(b) for b in row["isr"]),
                controller_epoch=int(row["controller_epoch"]),
                directories={int(b): uuid_from_text(d) for b, d in rows.items()},
                elr=tuple(int(b) for b in row.get("elr", ())),
                uncreated=tuple(int(b) for b in row.get("unmade", ())),
            )


def encode_overrides(config: Mapping[str, str]) -> bytes:
    """The data of a config node."""
    return dump({"version": 1, "config": dict(sorted(config.items()))})


def decode_overrides(path: str, data: bytes) -> dict[str, str]:
    """The overrides in a config node. Raises ZnodeError."""
    config = load(path, data).get("config")
    if not isinstance(config, dict):
        raise ZnodeError(f"{path}: no config object")
    with _reading(path, "overrides"):
        return {str(k): str(v) for k, v in config.items()}


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The last allocated block of producer ids: start to end, both inclusive as in Kafka."""

    broker_id: int
    start: int
    end: int

    def encode(self) -> bytes:
        """As JSON; Kafka writes the bounds as strings."""
        row = {"version": 1, "broker": self.broker_id}
        return dump({**row, "block_start": str(self.start), "block_end": str(self.end)})

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdBlock:
        """From JSON. Raises ZnodeError."""
        row = load(PRODUCER_IDS, data)
        with _reading(PRODUCER_IDS, "a block of producer ids"):
            block = cls(int(row["broker"]), int(row["block_start"]), int(row["block_end"]))
            if not 0 <= block.start <= block.end < PRODUCER_IDS_END:
                raise ValueError(f"{block.start} to {block.end}")
            return block


@dataclass(frozen=True, slots=True)
class LastRegistration:
    """The last registration of a broker that a controller has handled."""

    broker_epoch: int
    boot_id: str
    min_insync_replicas: int = UNKNOWN_MIN_INSYNC_REPLICAS

    def encode(self) -> bytes:
        """As JSON."""
        row = {"version": 1, "broker_epoch": self.broker_epoch, "boot_id": self.boot_id}
        return dump({**row, "min_insync_replicas": self.min_insync_replicas})

    @classmethod
    def decode(cls, path: str, data: bytes) -> LastRegistration:
        """From JSON. Raises ZnodeError."""
        row = load(path, data)
        with _reading(path, "a broker's last registration"):
            least = int(row.get("min_insync_replicas", UNKNOWN_MIN_INSYNC_REPLICAS))
            return cls(int(row["broker_epoch"]), str(row["boot_id"]), least)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Replicas whose deletion is not confirmed: partition -> brokers.

    `is_topic_deletion`: the topic itself is deleted; a topic node with this id is a leftover.
    """

    topic: str
    topic_id: UUID
    replicas: Mapping[int, tuple[int, ...]]
    is_topic_deletion: bool

    def encode(self) -> bytes:
        """As JSON."""
        row = {"version": 1, "topic": self.topic, "topic_id": id_text(self.topic_id)}
        return dump({**row, "replicas": _text_map(self.replicas), "whole": self.is_topic_deletion})

    @classmethod
    def decode(cls, path: str, data: bytes) -> Deletion:
        """From JSON. Raises ZnodeError."""
        row = load(path, data)
        with _reading(path, "a deletion"):
            replicas = _int_map(row["replicas"])
            topic_id = uuid_from_text(row["topic_id"])
            return cls(str(row["topic"]), topic_id, replicas, bool(row["whole"]))
