"""Ports of replication to the rest of the broker and the world; handed in at construction."""

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

OffLoop = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a job beside the loop."""


async def at_once(job: Callable[[], None]) -> None:
    """Run `job` on the loop: for doubles in memory, which never wait for a disk."""
    job()


async def already() -> None:
    """Return at once: for files whose changes are durable when they return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPorts:
    """Clock, network, control calls and the like."""

    clock: Clock
    entropy: Entropy
    connect: Connect
    """(host, port) -> a connection to another broker's data plane."""
    control: ControlCalls
    """Control calls to leaders: ReplicaState, when a follower starts behind a tiered part."""
    alter_partition: Callable[[AlterPartitionRequest], Awaitable[AlterPartitionReply]]
    """Sends ISR changes to the controller. May raise ControlUnavailableError or KafkaError."""
    broker_epoch: Callable[[], int]
    """This broker's epoch (the czxid of its registration); -1 while unregistered."""
    cluster_id: Callable[[], str | None]
    broker: Callable[[int], LiveBroker | None]
    """A live broker, by the metadata cache."""
    log_config: Callable[[Mapping[str, str]], LogConfig]
    """A topic's overrides over this broker's defaults."""
    on_peer_gone: Callable[[int], None]
    """(broker id): its connection ended and its port refuses connections: the process is dead."""
    tiered_end: Callable[[UUID, int], int | None] = lambda topic_id, partition: None
    """(topic id, partition) -> the offset after the last one in the table; None while unknown."""
    restored_end: Callable[[UUID, int], int | None] = lambda topic_id, partition: None
    """(topic id, partition) -> the first offset to assign after a restore; None: never restored."""
    off_loop: OffLoop = at_once
    """Runs a job that creates or replaces files in a thread, so that the loop goes on."""
    durable: Callable[[], Awaitable[None]] = already
    """Returns when all files renamed so far stay renamed after a power loss."""
