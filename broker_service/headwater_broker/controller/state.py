"""The controller's state: brokers, topics, partitions, pending deletions. It makes no decisions.

A new controller rebuilds it from ZooKeeper, so nothing here is ever rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headwater.config.keys import TOPIC_KEYS, broker_values, group_limits
from headwater.config.layers import CLUSTER_WIDE
from headwater.wire.control import (
    BrokerConfigs,
    ConfigEntry,
    LiveBroker,
    PartitionState,
    TopicState,
)
from headwater_broker.controller.state_machines import (
    PartitionPhase,
    ReplicaPhase,
    partition_move,
    replica_move,
)
from headwater_broker.metadata.znodes import BrokerRegistration, LastRegistration, PartitionRecord
from headwater_broker.security.delegation_tokens import TokenSecrets, TokenTable

NO_LEADER = -1
MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
TIERING_KEY = "remote.storage.enable"
NO_VERSION = -1

PartitionKey = tuple[UUID, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Cluster-wide settings of the controller, by Kafka's names."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000
    max_partitions_per_request: int = 10_000
    min_insync_replicas: int = 1
    token_secrets: TokenSecrets = field(default_factory=TokenSecrets)
    token_lifetime_max_ms: int = 604_800_000
    token_expiry_time_ms: int = 86_400_000
    token_expiry_check_interval_ms: int = 3_600_000
    group_limits: Mapping[str, int] = field(default_factory=lambda: group_limits(broker_values({})))
    """Defaults and bounds of the configs of groups."""


@dataclass(slots=True)
class Broker:
    """A broker: registered now, or offline, with what its last registration said."""

    broker_id: int
    epoch: int
    boot_id: str
    registration: BrokerRegistration | None
    min_insync_replicas: int
    """From the broker's own settings."""
    assignments: int = 0
    """The sequence of its latest AssignReplicasToDirs since it registered."""

    def live(self) -> LiveBroker:
        """The form that goes to the other brokers."""
        r = self.registration
        assert r is not None, f"broker {self.broker_id} is not registered"
        return LiveBroker(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            rack=r.rack,
            endpoints=r.endpoints,
            control_address=r.control_address,
        )

    def last_registration(self) -> LastRegistration:
        """The form that is stored for the next controller."""
        return LastRegistration(self.epoch, self.boot_id, self.min_insync_replicas)


@dataclass(slots=True)
class Partition:
    """One partition. `version` is that of its state node: the partition epoch."""

    topic: str
    topic_id: UUID
    index: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): see `set_isr`."""
    directories: dict[int, UUID] = field(default_factory=dict)
    uncreated: set[int] = field(default_factory=set)
    """Brokers that have not confirmed that they created their replica. Every controller sends them
    `is_new`, so that one of them may lead without a log."""
    version: int = NO_VERSION
    has_state: bool = False
    has_folder: bool = False
    offline_reason: str = ""
    phase: PartitionPhase = PartitionPhase.NON_EXISTENT
    replica_phases: dict[int, ReplicaPhase] = field(default_factory=dict)

    @property
    def key(self) -> PartitionKey:
        """Topic id and index. A topic that was deleted and re-created has another id."""
        return self.topic_id, self.index

    @property
    def name(self) -> str:
        """Topic and index, for messages."""
        return f"{self.topic}-{self.index}"

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas at the end of the running reassignment."""
        return tuple(b for b in self.replicas if b not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas before the running reassignment; a cancellation restores them."""
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def joining(self) -> tuple[int, ...]:
        """Replicas of `adding` that will stay. The others were added by a reassignment that was
        replaced or cancelled since."""
        return tuple(b for b in self.adding if b not in self.removing)

    def move(self, to: PartitionPhase) -> None:
        """Change the phase. Raises InvalidTransitionError."""
        self.phase = partition_move(self.name, self.phase, to)

    def move_replica(self, broker_id: int, to: ReplicaPhase) -> None:
        """Change one replica's phase. Raises InvalidTransitionError."""
        now = self.replica_phases.get(broker_id, ReplicaPhase.NON_EXISTENT)
        self.replica_phases[broker_id] = replica_move(f"{self.name}@{broker_id}", now, to)

    def set_isr(self, isr: tuple[int, ...], min_insync_replicas: int) -> None:
        """Set the ISR and update the eligible leader replicas (KIP-966).

        Below min.insync.replicas the leader commits nothing. A replica that leaves the ISR then has
        all committed records, so it stays eligible to lead.
        """
        left = tuple(b for b in (*self.isr, *self.elr) if b not in isr and b in self.replicas)
        self.isr = isr
        is_short = len(isr) < min(min_insync_replicas, len(self.replicas))
        self.elr = left if is_short else ()

    def record(self, controller_epoch: int) -> PartitionRecord:
        """The form that is stored."""
        return PartitionRecord(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            controller_epoch=controller_epoch,
            directories=self.directories,
            elr=self.elr,
            uncreated=tuple(sorted(self.uncreated)),
        )


@dataclass(slots=True)
class Topic:
    """One topic. `version` is that of its node."""

    name: str
    topic_id: UUID
    partitions: dict[int, Partition]
    configs: dict[str, str] = field(default_factory=dict)
    version: int = NO_VERSION
    has_folder: bool = False
    has_config: bool = False

    @property
    def is_tiered(self) -> bool:
        """Whether its history moves to a Delta table (KIP-405)."""
        return is_tiered(self.configs)

    def describe(self, *, deleted: bool = False) -> TopicState:
        """The form that goes to brokers."""
        entries = tuple(ConfigEntry(name=k, value=v) for k, v in sorted(self.configs.items()))
        return TopicState(topic=self.name, topic_id=self.topic_id, configs=entries, deleted=deleted)


@dataclass(slots=True)
class CatchingUp:
    """A broker that is back, with the partitions that prefer it and that it may still lack in the
    ISR of."""

    partitions: list[Partition]
    ticks: int = 0


@dataclass(slots=True)
class PendingDeletion:
    """Replicas that brokers still have to delete: those of a deleted topic, or replicas that a
    reassignment removed."""

    topic: str
    topic_id: UUID
    is_topic_deletion: bool
    phases: dict[tuple[int, int], ReplicaPhase]
    """(partition, broker) -> phase, until the broker confirms."""
    in_store: bool = False
    on_failed_disks: set[tuple[int, int]] = field(default_factory=set)
    """Keys of `phases` whose broker answered KAFKA_STORAGE_ERROR. A failed disk does not come back
    while the broker runs, so the request is repeated only after a restart."""

    def move(self, partition: int, broker_id: int, to: ReplicaPhase) -> None:
        """Change one replica's phase. Raises InvalidTransitionError."""
        key = (partition, broker_id)
        name = f"{self.topic}-{partition}@{broker_id}"
        self.phases[key] = replica_move(name, self.phases[key], to)

    def waiting(self) -> dict[int, tuple[int, ...]]:
        """Partition -> brokers that have not confirmed the deletion."""
        left: dict[int, tuple[int, ...]] = {}
        for partition, broker_id in sorted(self.phases):
            left[partition] = (*left.get(partition, ()), broker_id)
        return left


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Whether these overrides (valid ones) switch tiering on."""
    row = TOPIC_KEYS[TIERING_KEY]
    return row.parse(configs.get(TIERING_KEY, row.render(row.default))) is True


def _number(text: str | None) -> int | None:
    """The number in a config value; None when there is none."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def fold_name(topic: str) -> str:
    """The name with `.` as `_`: names that differ only there collide in Kafka's metric names."""
    return topic.replace(".", "_")


class ControllerState:
    """The whole state, with the indexes that decisions need."""

    def __init__(
        self, controller_id: int, controller_epoch: int, cluster_id: str, config: ControllerConfig
    ) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.cluster_id = cluster_id
        self.config = config
        self.brokers: dict[int, Broker] = {}
        self.offline_brokers: dict[int, Broker] = {}
        self.shutting_down: set[int] = set()
        self.catching_up: dict[int, CatchingUp] = {}
        """Brokers that are back and not in sync with all partitions that prefer them."""
        self.topics: dict[str, Topic] = {}
        self.topic_by_id: dict[UUID, Topic] = {}
        self.folded_names: dict[str, str] = {}
        self.unusable: dict[str, str] = {}
        """Topics in ZooKeeper whose nodes cannot be used, with the reason."""
        self.stray_configs: set[str] = set()
        """Names with a config node but no topic: created by hand, or left behind."""
        self.hosted: dict[int, dict[PartitionKey, Partition]] = {}
        self.pending_deletions: dict[UUID, PendingDeletion] = {}
        self.storage_faults: set[tuple[PartitionKey, int]] = set()
        self.stored_registrations: set[int] = set()
        self.unreadable_deletions: set[UUID] = set()
        """Topic ids whose node below `/headwater/deletions` cannot be read."""
        self.leaderless: dict[PartitionKey, Partition] = {}
        self.unclean_elections = 0
        """Number of unclean elections in this epoch."""
        self.reassigning: dict[PartitionKey, Partition] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        """Dynamic configs by broker id as text; the empty name stands for all brokers."""
        self.stored_broker_configs: set[str] = set()
        self.client_quotas: dict[str, dict[str, str]] = {}
        """Client quotas by entity path (`headwater.config.quota_precedence`)."""
        self.stored_quota_nodes: set[str] = set()
        """Nodes below `/config` that hold quotas, and their parents."""
        self.group_configs: dict[str, dict[str, str]] = {}
        """Configs by group id, of every group with a node, also an empty one."""
        self.tokens = TokenTable(config.token_secrets)
        """Delegation tokens."""
        self.next_producer_id = 0
        self.has_producer_ids = False

    def add_topic(self, topic: Topic) -> None:
        """Add a topic and index its partitions."""
        self.topics[topic.name] = topic
        self.stray_configs.discard(topic.name)
        self.topic_by_id[topic.topic_id] = topic
        self.folded_names[fold_name(topic.name)] = topic.name
        for partition in topic.partitions.values():
            self.add_partition(partition)

    def topic_id_owners(self) -> dict[UUID, str]:
        """Topic id -> name, of all topics and of topics that are still being deleted."""
        removed = {
            key: deletion.topic
            for key, deletion in self.pending_deletions.items()
            if deletion.is_topic_deletion
        }
        return removed | {topic_id: topic.name for topic_id, topic in self.topic_by_id.items()}

    def add_partition(self, partition: Partition) -> None:
        """Index a partition by its replicas. Call it again after they changed."""
        for broker_id in partition.replicas:
            self.hosted.setdefault(broker_id, {})[partition.key] = partition
        if partition.adding or partition.removing:
            self.reassigning[partition.key] = partition

    def drop_replica(self, partition: Partition, broker_id: int) -> None:
        """Remove a replica from the indexes."""
        self.hosted.get(broker_id, {}).pop(partition.key, None)
        self.storage_faults.discard((partition.key, broker_id))
        partition.replica_phases.pop(broker_id, None)
        partition.directories.pop(broker_id, None)
        partition.uncreated.discard(broker_id)

    def drop_topic(self, topic: Topic) -> None:
        """Remove a topic."""
        self.topics.pop(topic.name, None)
        self.topic_by_id.pop(topic.topic_id, None)
        self.folded_names.pop(fold_name(topic.name), None)
        for partition in topic.partitions.values():
            self.leaderless.pop(partition.key, None)
            self.reassigning.pop(partition.key, None)
            for broker_id in partition.replicas:
                self.hosted.get(broker_id, {}).pop(partition.key, None)
                self.storage_faults.discard((partition.key, broker_id))

    def partitions(self) -> Iterator[Partition]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def partition(self, topic: str, index: int) -> Partition | None:
        """One partition by name."""
        known = self.topics.get(topic)
        return known.partitions.get(index) if known else None

    def is_unclean_allowed(self, topic: str) -> bool:
        """`unclean.leader.election.enable` of the topic, else of the cluster.

        The stored dynamic configs are read directly: the first decisions of an epoch may come
        before they have reached this broker's own settings.
        """
        rows = (
            self.topics[topic].configs,
            self.broker_configs.get(str(self.controller_id), {}),
            self.broker_configs.get(CLUSTER_WIDE, {}),
        )
        for row in rows:
            value = row.get(UNCLEAN_ELECTION, "").strip().lower()
            if value in ("true", "false"):
                return value == "true"
        return self.config.unclean_leader_election_enable

    def min_insync_replicas(self, partition: Partition) -> int:
        """The smallest `min.insync.replicas` that any leader of this partition may use now.

        Without a topic override it depends on the broker: each has its own file, and learns of a
        changed dynamic default in its own time.
        """
        own = _number(self.topics[partition.topic].configs.get(MIN_INSYNC_REPLICAS))
        if own is not None:
            return own
        stored = [_number(row.get(MIN_INSYNC_REPLICAS)) for row in self.broker_configs.values()]
        changed = [value for value in stored if value is not None and value > 0]
        known = (self.brokers.get(b) or self.offline_brokers.get(b) for b in partition.replicas)
        told = (broker.min_insync_replicas for broker in known if broker is not None)
        return min([self.config.min_insync_replicas, *changed, *told])

    def has_lost_directory(self, partition: Partition, broker_id: int) -> bool:
        """Whether the broker is registered without the data folder of this replica."""
        broker = self.brokers.get(broker_id)
        directory = partition.directories.get(broker_id)
        if broker is None or broker.registration is None or directory is None:
            return False
        return directory not in broker.registration.directory_ids

    def describe_broker_configs(self) -> tuple[BrokerConfigs, ...]:
        """The form that goes to brokers. Each uses its own row and the one for all brokers."""
        return _described(self.broker_configs)

    def describe_client_quotas(self) -> tuple[BrokerConfigs, ...]:
        """The form that goes to brokers: every entity that has a quota."""
        return _described({path: row for path, row in self.client_quotas.items() if row})

    def describe_group_configs(self) -> tuple[BrokerConfigs, ...]:
        """The form that goes to brokers: every group that has a config."""
        return _described({group: row for group, row in self.group_configs.items() if row})

    def was_registered(self, broker_id: int) -> bool:
        """Whether the broker runs now or has run before."""
        return (
            broker_id in self.brokers
            or broker_id in self.offline_brokers
            or broker_id in self.stored_registrations
        )

    def fault(self, partition: Partition, broker_id: int) -> str:
        """Why this replica may neither lead nor be in the ISR; empty when it may."""
        if broker_id not in self.brokers:
            return f"broker {broker_id} is not running"
        if broker_id in self.shutting_down:
            return f"broker {broker_id} is shutting down"
        if self.has_lost_directory(partition, broker_id):
            lost = partition.directories[broker_id]
            return (
                f"broker {broker_id} is back without directory {lost}, which held this replica "
                "(its disk was wiped or replaced)"
            )
        if self.storage_faults and (partition.key, broker_id) in self.storage_faults:
            return f"broker {broker_id} reports a storage failure"
        return ""

    def sole_directory(self, broker_id: int) -> UUID | None:
        """The broker's only data folder; None when it has several and chooses by itself."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.registration is None:
            return None
        ids = broker.registration.directory_ids
        return ids[0] if len(ids) == 1 else None

    def describe(self, partition: Partition) -> PartitionState:
        """The form that goes to brokers, without `is_new`."""
        return PartitionState(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            partition_epoch=max(partition.version, 0),
            isr=partition.isr,
            replicas=partition.replicas,
            adding_replicas=partition.adding,
            removing_replicas=partition.removing,
            offline_replicas=tuple(b for b in partition.replicas if self.fault(partition, b)),
            is_new=False,
            offline_reason=partition.offline_reason,
            eligible_leader_replicas=partition.elr,
        )


def _described(rows: Mapping[str, Mapping[str, str]]) -> tuple[BrokerConfigs, ...]:
    return tuple(
        BrokerConfigs(
            name=name,
            configs=tuple(ConfigEntry(name=k, value=v) for k, v in sorted(configs.items())),
        )
        for name, configs in sorted(rows.items())
    )
