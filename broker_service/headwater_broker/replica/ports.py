"""What replication needs of the outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.ports.control import ControlCalls
from headwater.ports.network import Connect
from headwater.wire.control import AlterPartitionReply, AlterPartitionRequest, LiveBroker
from headwater_broker.log.log_config import LogConfig


async def at_once(job: Callable[[], None]) -> None:
    """Run `job` here and now: where nothing waits for a disk (memory doubles)."""
    job()


async def already() -> None:
    """Nothing to wait for: where all is durable at return."""


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
    """A live broker as the cluster view knows it; LeaderAndIsr's live leaders come first."""
    log_config: Callable[[Mapping[str, str]], LogConfig]
    """A topic's overrides over this broker's defaults."""
    on_peer_gone: Callable[[int], None]
    """(broker id): its connection ended and its port refuses: its process is dead."""
    tiered_end: Callable[[UUID, int], int | None] = lambda topic_id, partition: None
    """(topic id, partition) -> the end of what the table holds, when known (from Delta)."""
    off_loop: Callable[[Callable[[], None]], Awaitable[None]] = at_once
    """Run a job that creates or replaces files where it does not hold the loop up."""
    durable: Callable[[], Awaitable[None]] = already
    """Return when the files that were renamed so far stay so, also after a power loss."""
