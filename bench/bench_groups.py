"""Benches of consumer groups, each figure against its bar: `make bench-groups`.

    settle    a group of 100 members that all join at once, in either protocol, and then one leaves;
              without group.initial.rebalance.delay.ms, for which a classic group waits first, by
              Kafka's default 3 s
    many      10,000 groups of 2 members on three brokers: CPU of the brokers, heartbeats' latency
    failover  ... and `kill -9` of a broker: all its groups answered for by others, no offset lost

`--only NAME` (repeatable) runs some; `--kafka` measures `settle` on Apache Kafka instead;
`--groups N` and `--members N` size the others. Exit 1 when a bar is missed, or when something does
not settle in time, which is named.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench_scale import show
from lean_members import (
    AGAIN_S,
    CALL_S,
    Addresses,
    Classic,
    Modern,
    commit,
    committed,
    has_settled,
)
from peers import KafkaPeer, bench_folder, cpu_seconds, rss_megabytes
from scale_cluster import Reading, cluster

from headwater.client.admin.client import Admin
from headwater.client.values import NewTopic
from headwater.errors import ErrorCode
from integration.cluster import LocalCluster

BROKERS = 3
MEMBERS = 100
SETTLE_TOPIC_PARTITIONS = 200
SETTLE_BAR_S = 2.0
QUIET_S = 3.0
"""A group is settled when nothing has changed for so long; that time is not counted."""
GROUPS = 10_000
PER_GROUP = 2
"""Of 10 there would be 20,000 heartbeats a second: 2.4 cores for the brokers alone."""
JOINING = 200
"""Groups that join at a time."""
CONNECTIONS = 64
"""To each broker: one answers in order, and a change waits for the replicas."""
UNSETTLED_S = 0.25
"""How often members heartbeat that have nothing to tell while their group settles."""
JOIN_LIMIT_S = 300.0
TELL_S = 15.0
"""How often it is told how many have settled."""
FAILOVER_LIMIT_S = 60.0
STEADY_S = 20.0
INTERVAL_S = 5.0
"""Kafka's default, which the brokers of `many` are given: without it they would ask for 1 s to 5 s,
by the members that they have."""
FAILOVER_BAR_S = 2.0
FETCHED = 200
OFFSET = 7
TOPIC = "work"
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.max.size": "200",
    "group.max.size": "200",
}


@dataclass(frozen=True)
class Settled:
    """From the first join to the last change, in seconds; the brokers' CPU seconds meanwhile."""

    joined_s: float
    left_s: float
    cpu_s: float


# -- one large group


async def _settle(bootstrap: str, pids: Sequence[int], protocol: str) -> Settled:
    group = f"settle-{protocol}"
    addresses = Addresses(bootstrap, MEMBERS)
    await addresses.find([group])
    at = addresses.of_group[group]
    connections = [await addresses.connection(at, number) for number in range(MEMBERS)]
    members: list[Modern | Classic] = [
        Modern(group, f"member-{n:03d}", TOPIC) if protocol == "consumer" else Classic(group)
        for n in range(MEMBERS)
    ]
    stops = [asyncio.Event() for _ in members]
    before, began = cpu_seconds(list(pids)), time.monotonic()
    tasks = [
        asyncio.create_task(member.live(connection, stop))
        for member, connection, stop in zip(members, connections, stops, strict=True)
    ]
    await _until_settled(members, tasks, began)
    joined = max(member.changed_s for member in members) - began
    cpu = cpu_seconds(list(pids)) - before
    stops[0].set()
    await tasks[0]
    gone = members.pop(0)
    began = time.monotonic()
    await _leave(gone, connections[0])
    await _until_settled(members, tasks[1:], began)
    left = max(member.changed_s for member in members) - began
    for stop in stops:
        stop.set()
    await asyncio.gather(*tasks)
    addresses.close()
    return Settled(joined, left, cpu)


async def _leave(member: Modern | Classic, connection: object) -> None:
    from headwater.client.connection import Connection
    from headwater.wire.apis import k13_leave_group as k13
    from headwater.wire.apis import k68_consumer_group_heartbeat as k68

    assert isinstance(connection, Connection)
    if isinstance(member, Modern):
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=member.group, member_id=member.name, member_epoch=-1
        )
        reply = await connection.call(request, k68.ConsumerGroupHeartbeatResponse, version=1)
    else:
        rows = (k13.MemberIdentity(member_id=member.name),)
        asked = k13.LeaveGroupRequest(group_id=member.group, members=rows)
        reply = await connection.call(asked, k13.LeaveGroupResponse)
    assert reply.error_code == 0, ErrorCode(reply.error_code).name


async def _until_settled(
    members: Sequence[Modern | Classic], tasks: Sequence[asyncio.Task[None]], began: float
) -> None:
    """All at one epoch with all partitions, and nothing has changed since `began` for QUIET_S."""
    while True:
        await asyncio.sleep(0.1)
        for task in tasks:
            if task.done():
                task.result()
        quiet = time.monotonic() - max(began, *(member.changed_s for member in members))
        if quiet >= QUIET_S and _is_whole(members):
            return


def _is_whole(members: Sequence[Modern | Classic]) -> bool:
    modern = [m for m in members if isinstance(m, Modern)]
    epochs = {m.epoch if isinstance(m, Modern) else m.generation for m in members}
    owned = [place for m in modern for place in m.owned]
    if len(owned) != len(set(owned)):
        raise RuntimeError("a partition is owned twice")
    return (
        len(epochs) == 1
        and min(epochs) > 0
        and (not modern or len(owned) == SETTLE_TOPIC_PARTITIONS)
    )


@contextmanager
def _running(kafka: bool) -> Iterator[tuple[str, list[int]]]:
    if not kafka:
        with cluster("settle", BROKERS, **_keys(PROPERTIES)) as trio:
            yield trio.bootstrap, [trio.pid(n) for n in range(BROKERS)]
        return
    peer = KafkaPeer(bench_folder("kafka"), BROKERS, properties=PROPERTIES).start()
    try:
        yield peer.bootstrap, peer.pids
    finally:
        peer.stop()


def _keys(properties: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in properties.items()}


def settle(kafka: bool = False) -> list[Reading]:
    """100 members at once, and one that leaves."""
    rows = []
    with _running(kafka) as (bootstrap, pids):
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, SETTLE_TOPIC_PARTITIONS, BROKERS)])
        for protocol in ("classic", "consumer"):
            found = asyncio.run(_settle(bootstrap, pids, protocol))
            beside = f"CPU of the brokers {found.cpu_s:.2f} s"
            what = f"{MEMBERS} members join, {protocol}"
            rows.append(Reading(what, found.joined_s, "s", SETTLE_BAR_S, beside))
            rows.append(Reading("... one leaves", found.left_s, "s", SETTLE_BAR_S))
    return rows


# -- many groups


class Crowd:
    """Many groups on one cluster, each of so many members."""

    def __init__(self, trio: LocalCluster, groups: int, members: int) -> None:
        self.trio = trio
        self.per_group = members
        self.addresses = Addresses(trio.bootstrap, CONNECTIONS)
        self.groups = {
            f"group-{n:05d}": [
                Modern(f"group-{n:05d}", f"member-{i}", TOPIC) for i in range(members)
            ]
            for n in range(groups)
        }
        self.late = 0
        """Heartbeats that were not sent, as the one before had no reply yet."""

    async def join(self) -> None:
        """All join and settle; each commits an offset for what it owns. Who has joined heartbeats
        while others still join: that takes longer than a session lasts. Raises RuntimeError, with
        what did not settle, when JOIN_LIMIT_S have passed."""
        await self.addresses.find(list(self.groups))
        turn, joined = asyncio.Semaphore(JOINING), list[Modern]()
        beats = asyncio.create_task(self._beat(joined, None))
        joins = asyncio.gather(
            *(self._join(number, group, turn, joined) for number, group in enumerate(self.groups))
        )
        telling = asyncio.create_task(self._tell(joined))
        try:
            waited: list[asyncio.Future[Any]] = [joins, beats, telling]
            await asyncio.wait(waited, timeout=JOIN_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            if beats.done():
                beats.result()
            if not joins.done():
                raise RuntimeError(self._unsettled(joined))
            joins.result()
        finally:
            for task in (telling, joins, beats):
                task.cancel()
            await asyncio.gather(telling, joins, beats, return_exceptions=True)

    async def _tell(self, joined: Sequence[Modern]) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(TELL_S)
            print(
                f"{time.monotonic() - began:.0f} s: {len(joined) // self.per_group:,} of "
                f"{len(self.groups):,} groups settled; {self.late:,} heartbeats late, "
                f"{self.fences():,} members fenced",
                file=sys.stderr, flush=True,
            )  # fmt: skip

    def _unsettled(self, joined: Sequence[Modern]) -> str:
        settled = {member.group for member in joined}
        left = [group for group in self.groups if group not in settled]
        begun = next((g for g in left if any(m.epoch for m in self.groups[g])), left[0])
        states = [(member.epoch, len(member.owned)) for member in self.groups[begun]]
        return (
            f"{len(left):,} of {len(self.groups):,} groups did not settle within "
            f"{JOIN_LIMIT_S:g} s; {begun} at {self.addresses.of_group[begun]} has (epoch, "
            f"partitions) {states}; {self.late:,} heartbeats were late, {self.fences():,} members "
            "fenced. --groups or --members makes the crowd smaller"
        )

    async def _join(
        self, number: int, group: str, turn: asyncio.Semaphore, joined: list[Modern]
    ) -> None:
        async with turn:
            connection = await self.addresses.connection(self.addresses.of_group[group], number)
            members = self.groups[group]
            while not has_settled(members):
                due = [member for member in members if member.must_tell] or members
                await asyncio.gather(*(member.beat(connection) for member in due))
                is_told = not any(member.must_tell for member in members)
                await asyncio.sleep(UNSETTLED_S if is_told else AGAIN_S)
            await asyncio.gather(*(commit(connection, m, TOPIC, OFFSET) for m in members))
            joined += members

    async def beat_for(self, seconds: float) -> list[float]:
        """Every member heartbeats each INTERVAL_S, spread evenly; the latencies."""
        members = [m for rows in self.groups.values() for m in rows]
        for member in members:
            member.latencies.clear()
        self.late = 0
        await self._beat(members, seconds)
        return [latency for member in members for latency in member.latencies]

    async def _beat(self, members: Sequence[Modern], seconds: float | None) -> None:
        """Heartbeats of these members, which may become more, for so long, or until cancelled. One
        that waits for its reply sends no other. Raises RuntimeError for one that is refused or gets
        none."""
        slots, began = 250, time.monotonic()
        pause_s = INTERVAL_S / slots
        waiting = dict[asyncio.Future[memoryview], Modern]()
        failed: list[Exception] = []

        def arrived(reply: asyncio.Future[memoryview]) -> None:
            member = waiting.pop(reply)
            if reply.cancelled():
                return
            try:
                member.adopt_pulse(reply.result())
            except (RuntimeError, OSError, ValueError) as error:  # raised where they are sent
                failed.append(error)

        for slot in itertools.count() if seconds is None else range(int(seconds / pause_s)):
            await asyncio.sleep(max(0.0, began + slot * pause_s - time.monotonic()))
            for number, member in enumerate(members[slot % slots :: slots]):
                if member.asked_s:
                    self._check_late(member)
                    continue
                at = self.addresses.of_group[member.group]
                connection = await self.addresses.connection(at, number)
                reply = member.pulse(connection)
                waiting[reply] = member
                reply.add_done_callback(arrived)
            if failed:
                raise failed[0]
        if waiting:
            await asyncio.wait(list(waiting), timeout=CALL_S)
        for member in waiting.values():
            self._check_late(member)
        if failed:
            raise failed[0]

    def _check_late(self, member: Modern) -> None:
        self.late += 1
        waited_s = time.monotonic() - member.asked_s
        if waited_s > CALL_S:
            at = self.addresses.of_group[member.group]
            raise RuntimeError(
                f"{member.name} of {member.group}: no reply to a heartbeat from {at} for "
                f"{waited_s:.0f} s; {self.late:,} heartbeats were late"
            )

    def check_interval(self) -> None:
        """Raises RuntimeError when a broker asks for other than INTERVAL_S."""
        told = sorted({member.interval_s for rows in self.groups.values() for member in rows})
        if told != [INTERVAL_S]:
            raise RuntimeError(f"the brokers ask for heartbeats each {told} s, not {INTERVAL_S} s")

    def fences(self) -> int:
        """How often members were fenced, and joined again."""
        return sum(member.fences for rows in self.groups.values() for member in rows)

    async def take_over(self, dead: str) -> tuple[float, int]:
        """From now until every group of a dead broker has its offsets; how many those are. Raises
        RuntimeError when one is lost, or some do not come in time."""
        began = time.monotonic()
        lost = [g for g, at in self.addresses.of_group.items() if at == dead]
        left = list(lost)
        while left:
            await self.addresses.find(left, dead)
            left = await self._missing(left)
            if left and time.monotonic() - began > FAILOVER_LIMIT_S:
                raise RuntimeError(
                    f"{len(left):,} of {len(lost):,} groups have no offsets {FAILOVER_LIMIT_S:g} s "
                    f"after their coordinator's death, {left[0]} among them"
                )
        return time.monotonic() - began, len(lost)

    async def _missing(self, groups: Sequence[str]) -> list[str]:
        """Those of which the offsets do not come yet. Raises RuntimeError when one is lost."""
        by_address: dict[str, list[str]] = {}
        for group in groups:
            by_address.setdefault(self.addresses.of_group[group], []).append(group)
        missing = []
        wanted = dict.fromkeys(range(self.per_group), OFFSET)
        for address, rows in by_address.items():
            connection = await self.addresses.connection(address)
            for at in range(0, len(rows), FETCHED):
                for group, found in (await committed(connection, rows[at : at + FETCHED])).items():
                    if isinstance(found, ErrorCode):
                        missing.append(group)
                    elif found != wanted:
                        raise RuntimeError(f"{group}: {found} is committed, not {wanted}")
        return missing


def many(groups: int, members: int) -> list[Reading]:
    """Steady heartbeats, then the death of a broker."""
    properties = {**PROPERTIES, "group.consumer.heartbeat.interval.ms": f"{INTERVAL_S * 1000:.0f}"}
    with cluster("many", BROKERS, **_keys(properties)) as trio:
        with Admin(trio.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, members, BROKERS)])
        return asyncio.run(_many(Crowd(trio, groups, members)))


async def _many(crowd: Crowd) -> list[Reading]:
    trio, count = crowd.trio, len(crowd.groups)
    pids = [trio.pid(n) for n in range(BROKERS)]
    before, began = cpu_seconds(pids), time.monotonic()
    await crowd.join()
    joined, cpu = time.monotonic() - began, cpu_seconds(pids) - before
    what = f"{count:,} groups of {crowd.per_group} join, settle and commit"
    rows = [Reading(what, joined, "s", None, f"CPU of the brokers {cpu:.1f} s")]
    await crowd.beat_for(INTERVAL_S)
    rows += await _steady(crowd, pids)
    rows += await _failover(crowd)
    crowd.addresses.close()
    return rows


async def _steady(crowd: Crowd, pids: Sequence[int]) -> list[Reading]:
    used, own = [cpu_seconds([pid]) for pid in pids], time.process_time()
    began = time.monotonic()
    latencies = sorted(await crowd.beat_for(STEADY_S))
    crowd.check_interval()
    taken = time.monotonic() - began
    shares = [(cpu_seconds([pid]) - u) / taken * 100 for pid, u in zip(pids, used, strict=True)]
    own_share = (time.process_time() - own) / taken * 100
    told = ", ".join(f"{share:.0f} %" for share in shares)
    cost = sum(shares) / 100 * taken / len(latencies) * 1e6
    memory = ", ".join(f"{rss_megabytes(pid):.0f}" for pid in pids)
    beside = f"{told}, the bench {own_share:.0f} %; {cost:.0f} us a heartbeat; RSS {memory} MB"
    what = f"steady, a heartbeat each {INTERVAL_S:g} s: the busiest broker"
    rows = [Reading(what, max(shares), "% of a core", None, beside)]
    p99 = latencies[len(latencies) * 99 // 100] * 1e3
    rate = len(latencies) / taken
    beside = f"p99 {p99:.1f} ms, {rate:,.0f}/s, {crowd.late:,} late"
    rows.append(Reading("... latency, p50", statistics.median(latencies) * 1e3, "ms", None, beside))
    beside = f"of {len(crowd.groups) * crowd.per_group:,}, since they joined"
    rows.append(Reading("... members fenced", crowd.fences(), "", 0, beside))
    return rows


async def _failover(crowd: Crowd) -> list[Reading]:
    trio, victim, fences = crowd.trio, 0, crowd.fences()
    dead = f"127.0.0.1:{trio.spec.slot(victim).port}"
    killed = time.monotonic()
    await asyncio.to_thread(trio.kill_broker, victim)
    detected = time.monotonic()
    taken, lost = await crowd.take_over(dead)
    offsets = lost * crowd.per_group
    beside = f"{lost:,} groups, {offsets:,} offsets; {detected - killed:.2f} s to notice"
    what = "coordinator killed: session closed to every offset read elsewhere"
    rows = [Reading(what, taken, "s", FAILOVER_BAR_S, beside)]
    await crowd.beat_for(INTERVAL_S)
    beside = f"{crowd.late:,} heartbeats late"
    fenced = crowd.fences() - fences
    rows.append(Reading("... members fenced by those who took over", fenced, "", 0, beside))
    return rows


def main() -> int:
    """Run what is asked for, print the table, say which bars are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=("settle", "many"))
    parser.add_argument("--kafka", action="store_true", help="`settle` on Apache Kafka")
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--members", type=int, default=PER_GROUP, help="of each of the groups")
    options = parser.parse_args()
    rows: list[Reading] = []
    if "settle" in (options.only or ("settle",)):
        rows += settle(options.kafka)
    if "many" in (options.only or ("many",)) and not options.kafka:
        rows += many(options.groups, options.members)
    show(rows, as_json=options.json)
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
