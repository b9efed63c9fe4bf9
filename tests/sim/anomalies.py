"""Anomalies of transactions that other systems have had, each planted by a script.

The numbers are those of the list that the design was checked against (`ANOMALIES` has a row for
each). A script raises the conditions; that the transaction is whole or absent, read once, in order,
and that the last stable offset moves on is checked after each by the world's invariants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from headwater.errors import ErrorCode
from headwater.wire.apis import k00_produce as k00
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k26_end_txn as k26
from headwater.wire.apis import k27_write_txn_markers as k27
from sim.ledger import Key
from sim.scripted import KEY, OTHER, Play, Script
from sim.transaction_clients import FENCED, AbortableError, FencedError, Identity
from sim.transaction_ledger import Fate

REFUSED = FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}
SOME_S = 1.0
"""Long enough for any request in a healthy cluster."""


# -- 1 to 5: frames that arrive late


async def late_end_txn(script: Script) -> None:
    """EndTxn(abort) is lost on its way; its retry ends the transaction, and the client begins the
    next one. Then the first EndTxn arrives."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    held = script.hold(k26.EndTxnRequest)
    late = await script.late(
        script.end_request(commit=False), k26.EndTxnResponse, 3 + script.version, held
    )
    await script.end(first, commit=False)
    second = script.begin()
    await script.write(second, KEY, (script.value(second),))
    await held.release()
    # Of version 2 it is a retry of the first abort, and is answered as that was.
    wanted = {1: ErrorCode.CONCURRENT_TRANSACTIONS, 2: ErrorCode.PRODUCER_FENCED}
    script.expect(ErrorCode((await late()).error_code), wanted[script.version])
    await script.write(second, OTHER, (script.value(second),))
    await script.end(second, commit=True)


async def late_batch(script: Script) -> None:
    """A batch arrives after the marker of its transaction, in a partition that has the marker."""
    script.expect(await _late_batch(script, KEY, 1), *REFUSED)
    await script.whole(OTHER)


async def late_batch_elsewhere(script: Script) -> None:
    """A batch arrives after the end of its transaction, in a partition without a marker."""
    script.expect(await _late_batch(script, OTHER, 0), *REFUSED)
    await script.whole(KEY)


async def late_batch_unheeded(script: Script) -> None:
    """The same, whatever the answer is: what the batch does to the partition is judged."""
    await _late_batch(script, OTHER, 0)


async def _late_batch(script: Script, key: Key, sequence: int) -> ErrorCode:
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    held = script.hold(k00.ProduceRequest)
    request = script.produce_request(key, (script.value(first),), sequence)
    late = await script.late(request, k00.ProduceResponse, 10 + script.version, held, key)
    await script.end(first, commit=False)
    await asyncio.sleep(SOME_S)  # its markers are written
    await held.release()
    row = (await late()).responses[0].partition_responses[0]
    return ErrorCode(row.error_code)


async def late_grant(script: Script) -> None:
    """A leader asks the coordinator about a batch, and the answer comes when the transaction has
    been aborted and the next one is open: it is about another transaction (ABA)."""
    remote = await _remote_key(script)
    first = script.begin()
    if script.version == 1:
        await script.enlist(remote)
    script.enlisted.add(remote)
    held = script.hold(k24.AddPartitionsToTxnRequest)
    written = script.loop.create_task(script.produce_code(remote, script.value(first), sequence=0))
    await held.caught()
    await script.end(first, commit=False)
    second = script.begin()
    if script.version == 1:
        await script.enlist(remote)
        script.enlisted.add(remote)
    await held.release()
    code = await written
    script.expect(code, *REFUSED)
    await script.write(second, remote, (script.value(second),))
    await script.end(second, commit=True)


async def second_batch_first(script: Script) -> None:
    """Two batches are in flight, and the question about the first is answered late."""
    remote = await _remote_key(script)
    first = script.begin()
    if script.version == 1:
        await script.enlist(remote)
    held = script.hold(k24.AddPartitionsToTxnRequest)
    values = [(script.value(first),) for _ in range(4)]
    written = script.loop.create_task(script.write(first, remote, *values))
    await held.caught()
    await asyncio.sleep(SOME_S / 2)
    await held.release()
    await written
    await script.end(first, commit=True)


async def _remote_key(script: Script) -> Key:
    """A partition that is not led by the coordinator's broker."""
    coordinator = script.broker(await script.coordinator_host())
    for key in (KEY, OTHER):
        if script.leader_of(key) is not coordinator:
            return key
    coordinator.kill("its coordinator should be elsewhere")
    await script.until(lambda: script.leader_of(KEY) is not coordinator, "another leader")
    coordinator.start_later(SOME_S)
    await script.until(lambda: not script.world.not_joined(), "in sync again", 60)
    return await _remote_key(script)


# -- 6 to 12: markers, coordinators, topics


async def marker_reply_lost(script: Script) -> None:
    """The reply to WriteTxnMarkers is lost, and the next transaction is open when the marker is
    sent again (KAFKA-19999)."""
    remote = await _remote_key(script)
    held = script.hold(k27.WriteTxnMarkersRequest)
    first = script.begin()
    await script.write(first, remote, (script.value(first),))
    await script.end(first, commit=True)
    await held.caught()
    await held.lose_reply()
    second = script.begin()
    await script.write(second, remote, (script.value(second),))
    await asyncio.sleep(SOME_S * 5)
    await script.write(second, remote, (script.value(second),))
    await script.end(second, commit=False)


async def late_marker(script: Script) -> None:
    """A marker arrives twice on one connection: when its transaction ends, and when the next one
    is open. (In version 1 nothing in the second one tells that it is late; only a marker on an
    older connection is known to be.)"""
    remote = await _remote_key(script)
    held = script.hold(k27.WriteTxnMarkersRequest)
    first = script.begin()
    await script.write(first, remote, (script.value(first),))
    await script.end(first, commit=True)
    await held.caught()
    late = held.frames[0]
    await held.release()
    second = script.begin()
    await script.write(second, remote, (script.value(second),))
    held.frames.append(late)
    await held.release()
    await asyncio.sleep(SOME_S)
    await script.write(second, remote, (script.value(second),))
    await script.end(second, commit=False)


async def two_coordinators(script: Script) -> None:
    """A coordinator that was cut off sends its marker after its successor has ended the
    transaction, and the next one is open."""
    remote = await _remote_key(script)
    held = script.hold(k27.WriteTxnMarkersRequest)
    first = script.begin()
    await script.write(first, remote, (script.value(first),))
    await script.end(first, commit=False)
    await held.caught()
    old = script.broker(await script.coordinator_host())
    old.kill("a coordinator that is replaced")
    second = script.begin()
    await script.write(second, remote, (script.value(second),))
    await held.release()
    await asyncio.sleep(SOME_S)
    old.start_later(0.1)
    await script.write(second, OTHER, (script.value(second),))
    await script.end(second, commit=True)


async def coordinator_dies(script: Script) -> None:
    """The coordinator is killed between any two of the events that follow a request."""
    random = script.world.random
    for number in range(24):
        made = script.begin()
        script.transaction = made
        commit = number % 3 != 0
        try:
            for key in (KEY, OTHER):
                if number % 2:
                    await _strike(script, random.randrange(40))
                await script.write(made, key, (script.value(made),))
            await _strike(script, random.randrange(80))
        except AbortableError:
            commit = False
        try:
            await script.end(made, commit=commit)
        except FencedError:  # it took longer than its timeout
            await script.initialise()
        await script.until(_all_up(script), "all brokers are up")


async def _strike(script: Script, events: int) -> None:
    """Kill the coordinator's broker after so many of its next events."""
    broker = script.broker(await script.coordinator_host())
    if broker.loop is not None:
        broker.loop.kill_after = events
        script.world.scheduler.later(SOME_S, broker.start)


async def completion_is_unrecorded(script: Script) -> None:
    """The coordinator is killed when every partition holds its marker and no record says so yet,
    or when the record of the next transaction has just said so: its successor sends the markers
    again, and none of them into the next transaction."""
    for number in range(4):
        await script.whole(KEY, OTHER, commit=number % 2 == 0)
        coordinator = script.broker(await script.coordinator_host())
        await script.until(
            partial(script.is_completed_without_record, coordinator), "the markers are written"
        )
        following = script.begin()
        if number > 1:
            await script.write(following, OTHER, (script.value(following),))
        coordinator.kill("before a completion is recorded")
        script.world.scheduler.later(SOME_S, coordinator.start)
        await script.write(following, KEY, (script.value(following),))
        await script.end(following, commit=number % 3 == 0)
        await script.until(_all_up(script), "all brokers are up")


def _all_up(script: Script) -> Callable[[], bool]:
    return lambda: all(b.node is not None and b.node.is_ready for b in script.world.brokers)


async def leader_moves(script: Script) -> None:
    """The leader dies while it asks the coordinator about a batch."""
    remote = await _remote_key(script)
    held = script.hold(k24.AddPartitionsToTxnRequest)
    first = script.begin()
    if script.version == 1:
        held_by_client = script.loop.create_task(script.enlist(remote))
        await held.caught()
        await held.release()
        await held_by_client
        held = script.hold(k24.AddPartitionsToTxnRequest)
    written = script.loop.create_task(script.write(first, remote, (script.value(first),)))
    await held.caught()
    leader = script.leader_of(remote)
    leader.kill("the leader dies while it enlists")
    leader.start_later(SOME_S)
    await held.release()
    await written
    await script.end(first, commit=True)


async def marker_is_truncated(script: Script) -> None:
    """A leader dies with a marker that no follower has: the next one gets it again, and nothing is
    read before."""
    remote = await _remote_key(script)
    first = script.begin()
    await script.write(first, remote, (script.value(first),))
    leader = script.leader_of(remote)
    others = [b for b in script.world.brokers if b is not leader]
    coordinator = script.broker(await script.coordinator_host())
    # Its followers get nothing more; the coordinator reaches it.
    held = script.hold(k27.WriteTxnMarkersRequest)
    await script.end(first, commit=False)
    await held.caught()
    cut = {(leader.host, b.host) for b in others if b is not coordinator}
    script.world.network.cut.update(cut)
    await held.release()
    await asyncio.sleep(0.02)
    leader.kill("the leader dies with a marker of its own")
    script.world.network.cut.difference_update(cut)
    leader.start_later(SOME_S)
    await script.whole(remote)


# -- 13 to 26


async def add_races_prepare(script: Script) -> None:
    """AddPartitionsToTxn arrives when the transaction is being ended, or has ended."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    held = script.hold(k24.AddPartitionsToTxnRequest)
    await script.late(script.add_request(OTHER), k24.AddPartitionsToTxnResponse, 3, held)
    markers = script.hold(k27.WriteTxnMarkersRequest)
    await script.end(first, commit=True)
    await held.release()
    await asyncio.sleep(0.1)
    await markers.release()
    await asyncio.sleep(SOME_S)
    # A transaction that the late request may have opened is this client's own next one.
    await script.whole(KEY)


async def init_retried(script: Script) -> None:
    """The reply to InitProducerId with an identity is lost: its retry does not fence the
    producer itself."""
    await script.whole(KEY)
    before = script.identity
    await script.raise_epoch()
    after = script.identity
    script.identity = before
    await script.raise_epoch()
    script.expect(script.identity, after)
    await script.whole(KEY)


async def end_retried_after_failover(script: Script) -> None:
    """EndTxn is repeated to the next coordinator, which answers as the first did (KAFKA-20310)."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    before = script.identity
    await script.end(first, commit=True)
    after = script.identity
    coordinator = script.broker(await script.coordinator_host())
    coordinator.kill("a failover before the retry")
    coordinator.start_later(SOME_S)
    script.identity = before
    await script.end(first, commit=True)
    script.expect(script.identity, after)
    await script.whole(KEY)


async def timeout_meets_commit(script: Script) -> None:
    """A transaction times out while its commit is on the way."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    held = script.hold(k26.EndTxnRequest)
    await script.late(script.end_request(commit=True), k26.EndTxnResponse, 3 + script.version, held)
    first.fate = Fate.UNKNOWN
    await asyncio.sleep(script.timeout_ms / 1000 + SOME_S)
    await held.release()
    await asyncio.sleep(SOME_S)
    try:
        await script.end(first, commit=True)
    except FencedError:
        script.expect(script.version, 1)
    script.expect(first.fate, Fate.ABORTED)
    await script.initialise()
    await script.whole(KEY)


async def zombie_commits(script: Script) -> None:
    """A second instance begins while the first is about to commit."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    mine = script.identity
    theirs = await script.init_again()
    script.expect(await script.end_code(commit=True, identity=mine), *FENCED)
    first.fate = Fate.ABORTED
    script.expect(await script.produce_code(KEY, script.value(first), 1), *FENCED)
    script.adopt(theirs)
    await script.whole(KEY)


async def operator_aborts(script: Script) -> None:
    """An operator writes an abort marker for a live transaction: it is refused."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    code = await _foreign_marker(script, KEY, script.identity)
    script.expect(code, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    await script.write(first, KEY, (script.value(first),))
    await script.end(first, commit=True)


async def _foreign_marker(script: Script, key: Key, identity: Identity) -> ErrorCode:
    topic = k27.WritableTxnMarkerTopic(name=key[0], partition_indexes=(key[1],))
    marker = k27.WritableTxnMarker(
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=0,
    )
    request = k27.WriteTxnMarkersRequest(markers=(marker,))
    reply = await script.ask(await script.leader_host(key), request, k27.WriteTxnMarkersResponse, 1)
    return ErrorCode(reply.markers[0].topics[0].partitions[0].error_code)


async def append_refused(script: Script) -> None:
    """The coordinator's records are refused for a while: two of three brokers are down."""
    first = script.begin()
    await script.write(first, KEY, (script.value(first),))
    coordinator = script.broker(await script.coordinator_host())
    others = [b for b in script.world.brokers if b is not coordinator]
    for broker in others:
        broker.kill("the coordinator is left alone")
        script.world.scheduler.later(SOME_S * 5, broker.start)
    await script.end(first, commit=True)
    await script.whole(KEY)


async def brokers_die_after_commit(script: Script) -> None:
    """All brokers are killed when a commit was answered, before its markers are written: the
    answer holds, and no other transaction is touched when the log is replayed."""
    await script.whole(KEY, commit=False)
    await asyncio.sleep(SOME_S)  # its markers are written
    markers = script.hold(k27.WriteTxnMarkersRequest, limit=100)
    await script.whole(KEY, OTHER)
    for broker in script.world.brokers:
        broker.kill("all at once")
        script.world.scheduler.later(SOME_S, broker.start)
    await asyncio.sleep(SOME_S * 2)
    await markers.release()
    await script.whole(KEY, commit=False)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A script, and the transaction versions that it is played with."""

    number: str
    play: Play
    versions: tuple[int, ...] = (1, 2)
    properties: dict[str, str] = field(default_factory=dict)
    """Properties of the brokers in addition to those of all scripts."""


ANOMALIES = (
    Anomaly("1", late_end_txn),
    Anomaly("2", late_batch),
    Anomaly("3", late_batch_elsewhere),
    Anomaly("4", late_grant),
    Anomaly("5", second_batch_first),
    Anomaly("6", marker_reply_lost),
    Anomaly("6, late", late_marker, (2,)),
    Anomaly("7, 21", marker_is_truncated),
    Anomaly("8", two_coordinators),
    Anomaly("9", coordinator_dies),
    Anomaly("12", leader_moves),
    Anomaly("14", init_retried, (1,)),
    Anomaly("14, KAFKA-20310", end_retried_after_failover),
    Anomaly("15", add_races_prepare),
    Anomaly("20", operator_aborts),
    Anomaly("23", brokers_die_after_commit),
    Anomaly("26", append_refused),
    Anomaly("unrecorded completion", completion_is_unrecorded),
    Anomaly("KAFKA-20785", timeout_meets_commit),
    Anomaly("zombie", zombie_commits),
)
