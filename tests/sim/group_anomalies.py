"""Anomalies of offsets that transactions commit, each planted by a script like `anomalies.py`."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k25_add_offsets_to_txn as k25
from headwater.wire.apis import k28_txn_offset_commit as k28
from sim.anomalies import REFUSED, SOME_S, Anomaly
from sim.broker import Broker
from sim.clients import LOST, Client
from sim.ledger import Key
from sim.scripted import KEY, OTHER, Script
from sim.store import HOST as STORE
from sim.transaction_clients import GROUP

GROUP_ID = "group"
OFFSETS: Key = ("__consumer_offsets", 0)
COORDINATOR = (GROUP, GROUP_ID)
FETCH_VERSION = 8
LATE = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""What a request on an older connection is answered."""
UNKNOWN = -1
"""No offset is committed."""


# -- requests


def _commit_request(script: Script, offset: int) -> k28.TxnOffsetCommitRequest:
    partition = k28.TxnOffsetCommitRequestPartition(
        partition_index=KEY[1], committed_offset=offset, committed_metadata=""
    )
    return k28.TxnOffsetCommitRequest(
        transactional_id=script.transactional_id,
        group_id=GROUP_ID,
        producer_id=script.identity.producer_id,
        producer_epoch=script.identity.epoch,
        topics=(k28.TxnOffsetCommitRequestTopic(name=KEY[0], partitions=(partition,)),),
    )


def _commit_code(reply: k28.TxnOffsetCommitResponse) -> int:
    return reply.topics[0].partitions[0].error_code


async def _add_offsets(script: Script) -> None:
    request = k25.AddOffsetsToTxnRequest(
        transactional_id=script.transactional_id,
        producer_id=script.identity.producer_id,
        producer_epoch=script.identity.epoch,
        group_id=GROUP_ID,
    )
    reply, _ = await script.to_coordinator(
        script.own_coordinator, request, k25.AddOffsetsToTxnResponse, 3, lambda r: r.error_code
    )
    script.expect(ErrorCode(reply.error_code), ErrorCode.NONE)


async def _transact(script: Script, offset: int) -> None:
    """Commit an offset in the open transaction."""
    if script.version == 1:
        await _add_offsets(script)
    script.enlisted.add(OFFSETS)
    reply, _ = await script.to_coordinator(
        COORDINATOR,
        _commit_request(script, offset),
        k28.TxnOffsetCommitResponse,
        3 + script.version,
        _commit_code,
    )
    script.expect(ErrorCode(_commit_code(reply)), ErrorCode.NONE)


async def _plain_commit(script: Script, offset: int) -> None:
    partition = k08.OffsetCommitRequestPartition(
        partition_index=KEY[1], committed_offset=offset, committed_metadata=""
    )
    topic = k08.OffsetCommitRequestTopic(name=KEY[0], partitions=(partition,))
    reply, _ = await script.to_coordinator(
        COORDINATOR,
        k08.OffsetCommitRequest(group_id=GROUP_ID, topics=(topic,)),
        k08.OffsetCommitResponse,
        8,
        lambda r: r.topics[0].partitions[0].error_code,
    )
    script.expect(reply.topics[0].partitions[0].error_code, ErrorCode.NONE)


def _fetch_request(*, stable: bool) -> k09.OffsetFetchRequest:
    topic = k09.OffsetFetchRequestTopics(name=KEY[0], partition_indexes=(KEY[1],))
    group = k09.OffsetFetchRequestGroup(group_id=GROUP_ID, topics=(topic,))
    return k09.OffsetFetchRequest(groups=(group,), require_stable=stable)


def _fetch_code(reply: k09.OffsetFetchResponse) -> int:
    group = reply.groups[0]
    return group.error_code or group.topics[0].partitions[0].error_code


async def _stable_offset(script: Script) -> int:
    """The committed offset, once no open transaction may change it."""
    reply, _ = await script.to_coordinator(
        COORDINATOR,
        _fetch_request(stable=True),
        k09.OffsetFetchResponse,
        FETCH_VERSION,
        _fetch_code,
    )
    script.expect(_fetch_code(reply), ErrorCode.NONE)
    return reply.groups[0].topics[0].partitions[0].committed_offset


async def _coordinator(script: Script) -> Broker:
    """The broker of the group's coordinator."""
    while (host := await script.find_coordinator(COORDINATOR)) is None:
        await script.pause()
    return script.broker(host)


async def _leave(script: Script, old: Broker) -> None:
    """Find other coordinators than this broker, which would keep requests until it is too late."""
    for key in (COORDINATOR, script.own_coordinator):
        while (host := await script.find_coordinator(key)) is None or script.broker(host) is old:
            await script.pause()


async def _fail_over(script: Script) -> None:
    """Kill the group's coordinator, in its commit, after it or before."""
    broker = await _coordinator(script)
    broker.kill("the group's coordinator")
    broker.start_later(SOME_S)


# -- scripts


async def marker_before_offsets(script: Script) -> None:
    """16: an offset arrives after the marker of its transaction."""
    first = script.begin()
    await _transact(script, 5)
    held = script.hold(k28.TxnOffsetCommitRequest)
    host = (await _coordinator(script)).host
    request = _commit_request(script, 6)
    client = Client(script.world, f"{script.name}.late")
    client.is_done = True
    script.world.clients.append(client)

    sent = client.loop.create_task(_code_of(client, host, request, script.version))
    await held.caught()
    await script.end(first, commit=True)
    script.expect(await _stable_offset(script), 5)
    await held.release()
    await asyncio.sleep(SOME_S)
    await script.whole(OTHER)
    script.expect(await _stable_offset(script), 5)
    script.expect(await sent, None, *REFUSED)


async def late_offsets(script: Script) -> None:
    """An offset arrives late, on an older connection: an older one than its client has committed
    since, or one of the transaction before, which was aborted."""
    script.timeout_ms = 60_000
    for number, ends_first in enumerate((False, True)):
        made = script.begin()
        if script.version == 1:
            await _add_offsets(script)
        script.enlisted.add(OFFSETS)
        held = script.hold(k28.TxnOffsetCommitRequest)
        host = (await _coordinator(script)).host
        client = Client(script.world, f"{script.name}.late.{number}")
        client.is_done = True
        script.world.clients.append(client)
        request = _commit_request(script, 5)
        sent = client.loop.create_task(_code_of(client, host, request, script.version))
        await held.caught()
        await script.connect(host)  # the client has given the first connection up
        await _transact(script, 6)
        if ends_first:
            await script.end(made, commit=False)
            made = script.begin()
        await _transact(script, 9)
        await held.release()
        await asyncio.sleep(SOME_S)
        await script.end(made, commit=True)
        script.expect(await _stable_offset(script), 9)
        script.expect(await sent, None, *REFUSED, *LATE)


async def _code_of(
    client: Client, host: str, request: k28.TxnOffsetCommitRequest, version: int
) -> ErrorCode | None:
    try:
        reply = await client.ask(host, request, k28.TxnOffsetCommitResponse, 3 + version)
    except LOST:
        return None
    return ErrorCode(_commit_code(reply))


async def plain_commit_after_pending(script: Script) -> None:
    """17: a plain commit overtakes the offset of an open transaction, which commits then."""
    for fails_over in (False, True):
        made = script.begin()
        await _transact(script, 9)
        await _plain_commit(script, 4)
        if fails_over:
            await _fail_over(script)
        await script.write(made, KEY, (script.value(made),))
        await script.end(made, commit=True)
        script.expect(await _stable_offset(script), 4)
        await _fail_over(script)
        script.expect(await _stable_offset(script), 4)


async def load_amid_open_offsets(script: Script) -> None:
    """18: the group's coordinator changes while offsets are pending."""
    wanted = UNKNOWN
    for number in range(6):
        commit = number % 2 == 1
        made = script.begin()
        script.timeout_ms = 60_000
        await _transact(script, number)
        await _fail_over(script)
        if number >= 4:
            await _transact(script, number)
        await script.end(made, commit=commit)
        wanted = number if commit else wanted
        script.expect(await _stable_offset(script), wanted)


async def stale_coordinator_answers(script: Script) -> None:
    """A coordinator of the group that was cut off, and does not know its successor, is asked for
    the committed offset: an old one would be read as the place to go on from."""
    first = script.begin()
    await _transact(script, 5)
    await script.end(first, commit=True)
    script.expect(await _stable_offset(script), 5)
    old = await _coordinator(script)
    network = script.world.network
    for other in (STORE, *(b.host for b in script.world.brokers if b is not old)):
        network.cut |= {(old.host, other), (other, old.host)}
    await script.until(lambda: script.leader_of(OFFSETS) is not old, "another coordinator", 60)
    await _leave(script, old)
    second = script.begin()
    await _transact(script, 9)
    await script.end(second, commit=True)
    while True:
        try:
            found = await script.ask(
                old.host, _fetch_request(stable=True), k09.OffsetFetchResponse, FETCH_VERSION
            )
        except LOST:
            break
        code = ErrorCode(_fetch_code(found))
        if code is ErrorCode.NONE:
            script.expect(found.groups[0].topics[0].partitions[0].committed_offset, 9)
            break
        if not code.retriable:
            script.expect(code, ErrorCode.NONE)
        break
    network.mend()
    await asyncio.sleep(SOME_S)
    script.expect(await _stable_offset(script), 9)


GROUP_ANOMALIES = (
    Anomaly("16", marker_before_offsets),
    Anomaly("late offsets", late_offsets),
    Anomaly("17", plain_commit_after_pending),
    Anomaly("18", load_amid_open_offsets),
    Anomaly("stale offsets", stale_coordinator_answers),
)
