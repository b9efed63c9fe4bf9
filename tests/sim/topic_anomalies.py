"""Anomalies of topics that change while a transaction is open, and of forgotten producers, each
planted by a script like `anomalies.py`."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode
from headwater.wire.apis import k19_create_topics as k19
from headwater.wire.apis import k20_delete_topics as k20
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.control import UpdateMetadataRequest
from headwater_broker.replica.partition import Partition
from sim.anomalies import SOME_S, Anomaly
from sim.broker import Broker
from sim.clients import LOST
from sim.ledger import Key
from sim.scripted import KEY, Script
from sim.transaction_ledger import Fate

PASSING: Key = ("passing", 0)
"""A partition that a script creates."""
SILENT_S = 6.0
"""Longer than a producer's state is kept."""


async def _create(script: Script, leader: Broker) -> None:
    """Create the topic, with this broker as leader."""
    others = [b.id for b in script.world.brokers if b is not leader]
    assignment = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=(leader.id, *others))
    request = k19.CreateTopicsRequest(
        topics=(
            k19.CreatableTopic(
                name=PASSING[0],
                num_partitions=-1,
                replication_factor=-1,
                assignments=(assignment,),
                configs=(k19.CreatableTopicConfig(name="min.insync.replicas", value="2"),),
            ),
        ),
        timeout_ms=2_000,
    )
    while True:
        try:
            reply = await script.ask(leader.host, request, k19.CreateTopicsResponse, 7)
        except LOST:
            continue
        if ErrorCode(reply.topics[0].error_code) in (
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ):
            break
        await script.pause()
    await script.until(lambda: _replica(leader) is not None, "the leader has the topic")


def _replica(broker: Broker) -> Partition | None:
    """The passing partition on a broker, if it leads."""
    node = broker.node
    found = None if node is None else node.replicas.partitions.get(PASSING)
    return found if found is not None and found.is_leader else None


async def _delete(script: Script, broker: Broker) -> None:
    request = k20.DeleteTopicsRequest(topic_names=(PASSING[0],), timeout_ms=2_000)
    reply = await script.ask(broker.host, request, k20.DeleteTopicsResponse, 5)
    script.expect(ErrorCode(reply.responses[0].error_code), ErrorCode.NONE)
    await script.until(lambda: _replica(broker) is None, "the topic is gone")


async def _foreign_leader(script: Script) -> Broker:
    """A broker that is not the coordinator's."""
    coordinator = script.broker(await script.coordinator_host())
    return next(b for b in script.world.brokers if b is not coordinator)


async def _written(script: Script, sequence: int = 0) -> None:
    """A record of the open transaction in the passing partition."""
    if script.version == 1:
        await script.enlist(PASSING)
    script.enlisted.add(PASSING)
    code = await script.produce_code(PASSING, b"passing", sequence)
    script.expect(code, ErrorCode.NONE)


async def topic_recreated(script: Script) -> None:
    """A topic is deleted and created again while its marker is on the way: the marker is not
    written to the new topic, and the transaction ends."""
    leader = await _foreign_leader(script)
    await _create(script, leader)
    first = script.begin()
    await _written(script)
    held = script.hold(k27.WriteTxnMarkersRequest)
    await script.end(first, commit=True)
    await held.caught()
    await _delete(script, leader)
    await _create(script, leader)
    await held.release()
    await script.whole(KEY)
    replica = _replica(leader)
    assert replica is not None
    script.expect(replica.log.log_end_offset, 0)


async def stale_metadata(script: Script) -> None:
    """The coordinator does not know a topic yet that its transaction has written to: the markers
    wait, and are not dropped as those of a deleted topic."""
    leader = await _foreign_leader(script)
    coordinator = script.broker(await script.coordinator_host())
    deaf = (UpdateMetadataRequest, coordinator.host)
    script.world.control.deaf.add(deaf)
    await _create(script, leader)
    first = script.begin()
    await _written(script)
    await script.end(first, commit=False)
    await asyncio.sleep(SOME_S)
    script.world.control.deaf.discard(deaf)

    def is_stable() -> bool:
        replica = _replica(leader)
        return replica is not None and replica.last_stable_offset == replica.high_watermark == 2

    await script.until(is_stable, "the marker is written")


async def forgotten_producer(script: Script) -> None:
    """A producer is silent until the leaders forget it, then goes on with its next sequence."""
    await script.whole(KEY)
    await asyncio.sleep(SILENT_S)
    made = script.begin()
    await script.write(made, KEY, (script.value(made),))
    await asyncio.sleep(SILENT_S / 2)  # an open transaction is not forgotten
    await script.write(made, KEY, (script.value(made),))
    await script.end(made, commit=True)
    script.expect(made.fate, Fate.COMMITTED)


EXPIRY = {
    "producer.id.expiration.ms": "2000",
    "producer.id.expiration.check.interval.ms": "500",
}
TOPIC_ANOMALIES = (
    Anomaly("10", topic_recreated),
    Anomaly("11", stale_metadata, (2,)),
    Anomaly("19", forgotten_producer, properties=EXPIRY),
)
