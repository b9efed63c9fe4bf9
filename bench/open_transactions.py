"""100,000 open transactional ids: what they take of a broker's memory, and how long they load."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from dataclasses import dataclass

from measures import Peer, create_topic, touch
from peers import KafkaPeer, age_seconds, rss_megabytes
from raw_transactions import RETRIABLE, TIMEOUT_MS, TRANSACTION, Channel, check, coordinator_of

from headwater.errors import ErrorCode
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headwater.wire.apis.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

IDS = 100_000
WORKERS = 32
TOPIC = "open"
PROBES = 500
"""Ids asked for after a restart: some of every partition of `__transaction_state`."""
LOAD_S = 120.0
ADD_VERSION = 3
"""The last version for clients: the later ones are for brokers."""
DESCRIBE_VERSION = 0
NOT_THERE = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@dataclass(frozen=True)
class OpenIds:
    """What the ids cost one broker."""

    per_s: float
    """Ids opened per second: InitProducerId, AddPartitionsToTxn."""
    megabytes: float
    """Memory that they added: of Kafka live heap after a collection, of Headwater resident."""
    restart_s: float
    """From the start of the process until all partitions answer, with no id in them."""
    full_restart_s: float
    """The same with all ids."""

    @property
    def load_s(self) -> float:
        """What the ids added to a restart."""
        return self.full_restart_s - self.restart_s


def measure(peer: Peer, ids: int = IDS) -> OpenIds:
    """Open so many ids on a fresh broker, and restart it before and after."""
    create_topic(peer, TOPIC, 1)
    touch(peer, TOPIC, 1)
    asyncio.run(_open(peer, range(WORKERS)))
    restart_s = _restart(peer, range(WORKERS))
    before = _megabytes(peer)
    start = time.monotonic()
    asyncio.run(_open(peer, range(WORKERS, WORKERS + ids)))
    per_s = ids / (time.monotonic() - start)
    megabytes = _megabytes(peer) - before
    step = max(ids // PROBES, 1)
    full = _restart(peer, range(WORKERS, WORKERS + ids, step))
    return OpenIds(per_s, megabytes, restart_s, full)


async def _open(peer: Peer, numbers: range) -> None:
    """Open a transaction of each id, many at once."""
    (await coordinator_of(peer, TOPIC, TRANSACTION)).close()  # makes `__transaction_state`
    waiting = iter(numbers)

    async def work() -> None:
        channel = await Channel.open("127.0.0.1", peer.ports[0])
        for number in waiting:
            name = f"open-{number}"
            identity = await _init(channel, name)
            await _add(channel, name, identity)
        channel.close()

    await asyncio.gather(*(work() for _ in range(WORKERS)))


async def _init(channel: Channel, name: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    while True:
        reply = await channel.call(request, InitProducerIdResponse)
        if reply.error_code not in RETRIABLE:
            check(name, reply.error_code)
            return reply.producer_id, reply.producer_epoch
        await asyncio.sleep(0.02)


async def _add(channel: Channel, name: str, identity: tuple[int, int]) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,)),),
    )
    reply = await channel.call(request, AddPartitionsToTxnResponse, ADD_VERSION)
    row = reply.results_by_topic_v3_and_below[0].results_by_partition[0]
    check(name, row.partition_error_code)


def _restart(peer: Peer, numbers: range) -> float:
    """Restart the broker; the age of its process when it describes these ids again."""
    peer.restart()
    asyncio.run(_loaded(peer, [f"open-{n}" for n in numbers]))
    return age_seconds(peer.pids[0])


async def _loaded(peer: Peer, names: list[str]) -> None:
    """Return when every one of these ids is known again."""
    end = time.monotonic() + LOAD_S
    request = DescribeTransactionsRequest(transactional_ids=tuple(names))
    while time.monotonic() < end:
        try:
            channel = await Channel.open("127.0.0.1", peer.ports[0])
            while time.monotonic() < end:
                reply = await channel.call(request, DescribeTransactionsResponse, DESCRIBE_VERSION)
                codes = {row.error_code for row in reply.transaction_states}
                if codes == {0}:
                    channel.close()
                    return
                if NOT_THERE in codes:
                    raise RuntimeError(f"{peer.name} has lost transactional ids")
                await asyncio.sleep(0.01)
        except OSError:
            await asyncio.sleep(0.01)
    raise RuntimeError(f"{peer.name} has not loaded its transactional ids in {LOAD_S:.0f} s")


def _megabytes(peer: Peer) -> float:
    """A JVM's resident memory says little: its heap grows as it likes until it is collected."""
    if not isinstance(peer, KafkaPeer):
        return rss_megabytes(peer.pids[0])
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        raise SystemExit("no jcmd: install a JDK, to see how much of Kafka's heap is in use")
    pid = str(peer.pids[0])
    subprocess.run([jcmd, pid, "GC.run"], check=True, capture_output=True)
    done = subprocess.run([jcmd, pid, "GC.heap_info"], check=True, capture_output=True, text=True)
    used = re.search(r"used (\d+)K", done.stdout)
    if used is None:
        raise RuntimeError(f"jcmd does not name the used heap: {done.stdout}")
    return int(used[1]) / 1024
