"""The state that the controller decides on: brokers, topics, partitions, deletions.

Rebuilt whole from the store at every fail-over, so nothing here is ever rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headwater.config.keys import TOPIC_KEYS
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


@dataclass(slots=True)
class Broker:
    """A broker that is registered now, or the memory of its last life."""

    broker_id: int
    epoch: int
    boot_id: str
    registration: BrokerRegistration | None
    min_insync_replicas: int
    """By its own settings."""
    assignments: int = 0
    """The number of the latest AssignReplicasToDirs in this life."""

    def live(self) -> LiveBroker:
        """As told to the other brokers."""
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
        """As kept in the store for the next controller."""
        return LastRegistration(self.epoch, self.boot_id, self.min_insync_replicas)


@dataclass(slots=True)
class Partition:
    """One partition. `version` is the state node's, which clients call the partition epoch."""

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
    """Brokers that shall make their replica and have not answered: they are told that it is new,
    by whichever controller, so that one of them may lead without a log."""
    version: int = NO_VERSION
    has_state: bool = False
    has_folder: bool = False
    offline_reason: str = ""
    phase: PartitionPhase = PartitionPhase.NON_EXISTENT
    replica_phases: dict[int, ReplicaPhase] = field(default_factory=dict)

    @property
    def key(self) -> PartitionKey:
        """Topic id and index: a re-created topic of the same name is another one."""
        return self.topic_id, self.index

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.topic}-{self.index}"

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a running reassignment is done."""
        return tuple(b for b in self.replicas if b not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas from before a running reassignment, which a cancel brings back."""
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def joining(self) -> tuple[int, ...]:
        """Those of `adding` that shall stay; the others a replaced or cancelled move had added."""
        return tuple(b for b in self.adding if b not in self.removing)

    def move(self, to: PartitionPhase) -> None:
        """Change phase by the table."""
        self.phase = partition_move(self.name, self.phase, to)

    def move_replica(self, broker_id: int, to: ReplicaPhase) -> None:
        """Change one replica's phase by the table."""
        now = self.replica_phases.get(broker_id, ReplicaPhase.NON_EXISTENT)
        self.replica_phases[broker_id] = replica_move(f"{self.name}@{broker_id}", now, to)

    def set_isr(self, isr: tuple[int, ...], min_insync_replicas: int) -> None:
        """Another ISR. Below min.insync.replicas no leader commits anything, so whoever leaves the
        ISR then keeps all that is committed: it stays eligible to lead (KIP-966)."""
        left = tuple(b for b in (*self.isr, *self.elr) if b not in isr and b in self.replicas)
        self.isr = isr
        is_short = len(isr) < min(min_insync_replicas, len(self.replicas))
        self.elr = left if is_short else ()

    def record(self, controller_epoch: int) -> PartitionRecord:
        """As written to the store."""
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
    """One topic; `version` is its node's."""

    name: str
    topic_id: UUID
    partitions: dict[int, Partition]
    configs: dict[str, str] = field(default_factory=dict)
    version: int = NO_VERSION
    has_folder: bool = False
    has_config: bool = False

    @property
    def is_tiered(self) -> bool:
        """Its history goes to a Delta table (KIP-405)."""
        return is_tiered(self.configs)

    def describe(self, *, deleted: bool = False) -> TopicState:
        """As told to brokers."""
        entries = tuple(ConfigEntry(name=k, value=v) for k, v in sorted(self.configs.items()))
        return TopicState(topic=self.name, topic_id=self.topic_id, configs=entries, deleted=deleted)


@dataclass(slots=True)
class CatchingUp:
    """A broker that is back: partitions that prefer it and that it may still be behind in."""

    partitions: list[Partition]
    ticks: int = 0


@dataclass(slots=True)
class PendingDeletion:
    """Replicas whose data must go: of a deleted topic (`whole`), or moved away from a broker."""

    topic: str
    topic_id: UUID
    is_topic_deletion: bool
    phases: dict[tuple[int, int], ReplicaPhase]
    """(partition, broker) -> phase, until the broker has confirmed."""
    in_store: bool = False
    on_failed_disks: set[tuple[int, int]] = field(default_factory=set)
    """As in `phases`: of these the broker says that a disk of it is away. As long as it runs no
    disk comes back: it is asked again when it was restarted."""

    def move(self, partition: int, broker_id: int, to: ReplicaPhase) -> None:
        """Change one replica's phase by the table."""
        key = (partition, broker_id)
        name = f"{self.topic}-{partition}@{broker_id}"
        self.phases[key] = replica_move(name, self.phases[key], to)

    def waiting(self) -> dict[int, tuple[int, ...]]:
        """Partition -> brokers that have not confirmed."""
        left: dict[int, tuple[int, ...]] = {}
        for partition, broker_id in sorted(self.phases):
            left[partition] = (*left.get(partition, ()), broker_id)
        return left


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Whether these overrides, checked before, switch tiering on."""
    row = TOPIC_KEYS[TIERING_KEY]
    return row.parse(configs.get(TIERING_KEY, row.render(row.default))) is True


def _number(text: str | None) -> int | None:
    """The number that a config's text stands for, if it is one."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def fold_name(topic: str) -> str:
    """Names that differ only in `.` and `_` would collide in metric names, as Kafka says."""
    return topic.replace(".", "_")


class ControllerState:
    """All of it, with the indexes that decisions need."""

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
        """Topics in the store whose nodes cannot be used, and why."""
        self.stray_configs: set[str] = set()
        """Names whose config node is there without a topic: hand-made, or left behind."""
        self.hosted: dict[int, dict[PartitionKey, Partition]] = {}
        self.pending_deletions: dict[UUID, PendingDeletion] = {}
        self.storage_faults: set[tuple[PartitionKey, int]] = set()
        self.stored_registrations: set[int] = set()
        self.unreadable_deletions: set[UUID] = set()
        """Topic ids below `/headwater/deletions` whose nodes cannot be used."""
        self.leaderless: dict[PartitionKey, Partition] = {}
        self.unclean_elections = 0
        """In this term: leaders that were not in sync, so that records may be lost."""
        self.reassigning: dict[PartitionKey, Partition] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        """Dynamic configs by broker id as text; the empty name counts for every broker."""
        self.stored_broker_configs: set[str] = set()
        self.client_quotas: dict[str, dict[str, str]] = {}
        """Client quotas by entity path (`headwater.config.quotas`)."""
        self.stored_quota_nodes: set[str] = set()
        """Below `/config`: nodes of quotas, and of what lies above them."""
        self.next_producer_id = 0
        self.has_producer_ids = False

    def add_topic(self, topic: Topic) -> None:
        """Enter a topic and index its partitions."""
        self.topics[topic.name] = topic
        self.stray_configs.discard(topic.name)
        self.topic_by_id[topic.topic_id] = topic
        self.folded_names[fold_name(topic.name)] = topic.name
        for partition in topic.partitions.values():
            self.add_partition(partition)

    def topic_id_owners(self) -> dict[UUID, str]:
        """Whose every topic id is: of the topics, and of those whose deletion goes on."""
        removed = {
            key: deletion.topic
            for key, deletion in self.pending_deletions.items()
            if deletion.is_topic_deletion
        }
        return removed | {topic_id: topic.name for topic_id, topic in self.topic_by_id.items()}

    def add_partition(self, partition: Partition) -> None:
        """Index one partition by its brokers; again after its replicas changed."""
        for broker_id in partition.replicas:
            self.hosted.setdefault(broker_id, {})[partition.key] = partition
        if partition.adding or partition.removing:
            self.reassigning[partition.key] = partition

    def drop_replica(self, partition: Partition, broker_id: int) -> None:
        """Forget that a broker hosts a partition."""
        self.hosted.get(broker_id, {}).pop(partition.key, None)
        self.storage_faults.discard((partition.key, broker_id))
        partition.replica_phases.pop(broker_id, None)
        partition.directories.pop(broker_id, None)
        partition.uncreated.discard(broker_id)

    def drop_topic(self, topic: Topic) -> None:
        """Forget a topic."""
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
        """The topic's own `unclean.leader.election.enable`, else the cluster's: what is stored for
        this broker or for all counts from the term's first decision on, which may be made before
        the broker's own settings have it."""
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
        """The least `min.insync.replicas` that a leader of this partition may go by now: brokers
        have their own files, and learn of a changed default one after the other."""
        own = _number(self.topics[partition.topic].configs.get(MIN_INSYNC_REPLICAS))
        if own is not None:
            return own
        stored = [_number(row.get(MIN_INSYNC_REPLICAS)) for row in self.broker_configs.values()]
        changed = [value for value in stored if value is not None and value > 0]
        known = (self.brokers.get(b) or self.offline_brokers.get(b) for b in partition.replicas)
        told = (broker.min_insync_replicas for broker in known if broker is not None)
        return min([self.config.min_insync_replicas, *changed, *told])

    def has_lost_directory(self, partition: Partition, broker_id: int) -> bool:
        """The broker is registered without the folder that held this replica."""
        broker = self.brokers.get(broker_id)
        directory = partition.directories.get(broker_id)
        if broker is None or broker.registration is None or directory is None:
            return False
        return directory not in broker.registration.directory_ids

    def describe_broker_configs(self) -> tuple[BrokerConfigs, ...]:
        """As told to brokers: each takes its own row and the one for all."""
        return _described(self.broker_configs)

    def describe_client_quotas(self) -> tuple[BrokerConfigs, ...]:
        """As told to brokers: every entity that has a quota."""
        return _described({path: row for path, row in self.client_quotas.items() if row})

    def was_registered(self, broker_id: int) -> bool:
        """It runs, or ran once: what waits for it may come true."""
        return (
            broker_id in self.brokers
            or broker_id in self.offline_brokers
            or broker_id in self.stored_registrations
        )

    def fault(self, partition: Partition, broker_id: int) -> str:
        """Why this replica may neither lead nor be in an ISR; empty when it may."""
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
        """The broker's one data folder; None when it has several and must choose itself."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.registration is None:
            return None
        ids = broker.registration.directory_ids
        return ids[0] if len(ids) == 1 else None

    def describe(self, partition: Partition) -> PartitionState:
        """As told to brokers, but for who has yet to make a replica."""
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
