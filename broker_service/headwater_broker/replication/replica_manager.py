"""All replicas of this broker: roles from the controller, fetchers, ISR changes, checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.ports.control import ControlCalls
from headwater.ports.network import Connect
from headwater.wire.control import (
    AlterPartitionReply,
    AlterPartitionRequest,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    LiveBroker,
    StopReplicaReply,
    StopReplicaRequest,
)
from headwater_broker.log.manager import LogManager
from headwater_broker.replication.limits import ReplicationLimits
from headwater_broker.replication.partition import Notify, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPorts:
    """What replication needs of the outside; the composition root hands it in."""

    clock: Clock
    entropy: Entropy
    connect: Connect
    """(host, port) -> a connection to a leader's data plane."""
    control: ControlCalls
    """Control calls to leaders: ReplicaState, when a follower begins above a tiered part."""
    alter_partition: Callable[[AlterPartitionRequest], Awaitable[AlterPartitionReply]]
    """ISR changes to whoever is controller. May raise ControlUnavailableError or KafkaError."""
    broker_epoch: Callable[[], int]
    """This broker's current broker epoch (czxid of its registration); -1 when unregistered."""
    cluster_id: Callable[[], str | None]
    broker: Callable[[int], LiveBroker | None]
    """A live broker as the cluster view knows it (fallback to LeaderAndIsr's live leaders)."""
    on_peer_gone: Callable[[int], None]
    """(broker id): its connection ended and its port refuses: its process is dead."""
    tiered_end: Callable[[str, int], int | None] = lambda topic, partition: None
    """(topic, partition) -> the end of what the table holds, when known (from Delta)."""


class ReplicaManager:
    """Every replica hosted here. All methods run on the broker's loop.

    `partitions` by (topic, partition); `by_id` by (topic id, partition); `topic_ids` topic name
    by the 16 bytes of the topic id (the fetch path's key). Never change them from outside.
    """

    def __init__(
        self, broker_id: int, logs: LogManager, limits: ReplicationLimits, ports: ReplicationPorts
    ) -> None:
        self.broker_id = broker_id
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[UUID, int], Partition] = {}
        self.topic_ids: dict[bytes, str] = {}
        self.controller_epoch = -1
        self.on_hw: Notify | None = None
        """Given to every partition, as are the next two: the purgatories' wake-ups."""
        self.on_append: Notify | None = None
        self.on_leadership: Notify | None = None
        self.leadership_listeners: list[Callable[[Partition], None]] = []
        """Called after LeaderAndIsr or StopReplica was applied, per partition whose leader epoch,
        leadership or hosting changed (coordinators load and unload shards here).
        """

    def set_wakers(
        self, *, on_hw: Notify | None, on_append: Notify | None, on_leadership: Notify | None
    ) -> None:
        """Wire the purgatories; also for partitions that exist already."""
        raise NotImplementedError

    def lookup(self, topic: str, partition: int) -> Partition:
        """The hosted replica. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        raise NotImplementedError

    def leader(self, topic: str, partition: int) -> Partition:
        """The hosted replica, led here. Raises also NOT_LEADER_OR_FOLLOWER."""
        raise NotImplementedError

    def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrReply:
        """Become leader or follower as the controller says."""
        raise NotImplementedError

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaReply:
        """Stop hosting; with `delete`, remove the log too."""
        raise NotImplementedError

    def update_topic_configs(self, topic: str, overrides: Mapping[str, str]) -> None:
        """A topic's configuration overrides changed (all of them, as they now are)."""
        raise NotImplementedError

    def isr_tick(self) -> None:
        """Shrink ISRs; call every replica.lag.time.max.ms / 2."""
        raise NotImplementedError

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """What `replication-offset-checkpoint` shall hold (LogManager's provider)."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """For the status page."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop fetchers and pending ISR changes; logs stay open (LogManager closes them)."""
        raise NotImplementedError
