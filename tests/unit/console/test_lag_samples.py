"""Samples of groups: what brokers are asked, rebalances that are counted, trends, throttles."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client.errors import kafka_error
from headwater.client.values import (
    ClientQuotas,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    MemberDescription,
    OffsetAndMetadata,
    ReplicaInfo,
    TopicPartition,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_gateway.app.login import Login
from headwater_gateway.console.lag.sampler import GROUPS_MAX, GroupSamples, LagSampler
from headwater_gateway.console.lag.verdict import Verdict
from headwater_gateway.console.lag.window import SAMPLES_MAX, GroupWindow, LogEnds
from headwater_gateway.console.snapshots import Snapshots
from unit.console.consoles import SETTINGS, FakeAdmin, FakeClients, services_over, topic
from unit.console.full_cluster import TP, full_admin

ENDS = {TP: LogEnds(0, 1000, 1000)}
OTHER = TopicPartition("flights", 2)


def group(*members: str, state: str = "Stable", tp: TopicPartition = TP) -> GroupDescription:
    rows = tuple(MemberDescription(m, None, m, "h", (tp,)) for m in members)
    return GroupDescription("app", state, "consumer", "range", rows)


def add(window: GroupWindow, at_s: float, it: GroupDescription, committed: int) -> None:
    window.add(at_s, 1_000 + at_s, it, {TP: committed}, ENDS)


def generation(window: GroupWindow) -> int:
    return window.partitions()[0].now.generation


def test_each_rebalance_that_is_seen_counts_once() -> None:
    window = GroupWindow()
    seen = []
    for at, it in enumerate(
        (
            group("a"),
            group("a"),
            group("a", "b", tp=TP),
            group("a", "b", state="PreparingRebalance"),
            group("a", "b", state="CompletingRebalance"),
            group("b"),
            group("b"),
            group("b", tp=OTHER),
        )
    ):
        add(window, at, it, 5)
        seen.append(generation(window))
    assert seen == [0, 0, 1, 2, 2, 2, 2, 3]


def test_a_window_reaches_back_five_minutes() -> None:
    window = GroupWindow()
    for i in range(SAMPLES_MAX + 10):
        add(window, 5.0 * i, group("a"), i)
    [row] = window.partitions()
    assert len(row.trend) == SAMPLES_MAX == window.sample_count == 61
    assert row.speed is not None and row.speed.read == 0.2
    assert window.trend().times_s[0] == 1_050.0
    assert window.lag == 1000 - (SAMPLES_MAX + 9)


def test_partitions_of_deleted_topics_leave_the_window() -> None:
    window = GroupWindow()
    add(window, 0, group("a"), 5)
    window.add(5, 1_005, group(), {}, {})
    assert window.partitions() == [] and window.worst() is None
    assert window.trend().by_topic == {}


def test_the_trend_is_by_topic_with_gaps_where_nothing_was_known() -> None:
    window = GroupWindow()
    add(window, 0, group("a"), 900)
    window.add(5, 1_005, group("a"), {TP: 950, OTHER: 40}, {**ENDS, OTHER: LogEnds(0, 50, 50)})
    window.add(10, 1_010, group("a"), {TP: 950, TopicPartition("x", 0): 1},
               {**ENDS, TopicPartition("x", 0): LogEnds(0, 2, 2)})  # fmt: skip
    assert window.trend().by_topic == {"flights": [100, 50, 50], "x": [None, None, 1]}


def test_a_round_asks_nothing_of_partitions_without_leader_or_topic() -> None:
    lost = TopicPartition("lost", 0)
    gone = TopicPartition("deleted", 0)
    admin = full_admin(
        list_groups=[GroupListing("app", "consumer", "Stable", "classic")],
        describe_groups={"app": group("a")},
        list_group_offsets={tp: OffsetAndMetadata(7) for tp in (TP, lost, gone)},
    )
    samples = GroupSamples()
    asyncio.run(samples.take(admin, 0.0, 0.0))
    for (wanted,) in admin.named("list_offsets"):
        assert set(wanted) == {TP}
    found = {row.partition: row.finding.verdict for row in samples.windows["app"].partitions()}
    assert set(found) == {TP, lost}


def test_groups_over_the_limit_are_listed_without_samples() -> None:
    many = [GroupListing(f"g{i}", "consumer", "Empty", "classic") for i in range(GROUPS_MAX + 3)]
    empty = {g.group_id: GroupDescription(g.group_id, "Empty", "", "", ()) for g in many}
    admin = full_admin(list_groups=many, describe_groups=empty, list_group_offsets={})
    samples = GroupSamples()
    asyncio.run(samples.take(admin, 0.0, 0.0))
    assert samples.left_out == 3 and len(samples.windows) == GROUPS_MAX
    assert len(samples.listings) == GROUPS_MAX + 3


def test_a_group_whose_offsets_are_refused_has_none() -> None:
    admin = full_admin(
        list_groups=[GroupListing("app", "consumer", "Stable", "classic")],
        describe_groups={"app": group("a")},
        list_group_offsets=kafka_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"),
    )
    samples = GroupSamples()
    asyncio.run(samples.take(admin, 0.0, 0.0))
    [row] = samples.windows["app"].partitions()
    assert row.now.committed is None and row.now.lag == 900


def throttled_verdict(quota: dict[str, str | None], rate: float) -> Verdict:
    """Of a reader of 100 records/s of 10 bytes, with lag."""
    log_dirs = {0: [LogDirDescription("/d", None, 0, 0, {TP: ReplicaInfo(9_000, 0, False)})]}
    committed = iter((100, 600, 1_100))
    admin = full_admin(
        list_groups=[GroupListing("app", "consumer", "Stable", "classic")],
        describe_groups={"app": group("a")},
        list_group_offsets=lambda _g: {TP: OffsetAndMetadata(next(committed))},
        list_offsets=lambda wanted, **_o: {
            tp: type("At", (), {"offset": 100 if at == -2 else 1_000}) for tp, at in wanted.items()
        },
        describe_client_quotas=[ClientQuotas(quota, {"consumer_byte_rate": rate})],
        describe_log_dirs=log_dirs,
    )
    samples = GroupSamples()
    for at in (0.0, 5.0):
        asyncio.run(samples.take(admin, at, at))
    window = samples.windows["app"]
    asyncio.run(samples.take(full_admin(**admin.answers | {
        "list_group_offsets": {TP: OffsetAndMetadata(800)}}), 10.0, 10.0))  # fmt: skip
    return window.partitions()[0].finding.verdict


def test_a_reader_at_its_quota_is_starved() -> None:
    assert throttled_verdict({"client-id": "a"}, 1_050.0) is Verdict.STARVED
    assert throttled_verdict({"client-id": None}, 1_050.0) is Verdict.STARVED
    assert throttled_verdict({"client-id": "a"}, 5_000.0) is Verdict.FINE
    assert throttled_verdict({"client-id": "other"}, 1_050.0) is Verdict.FINE


def sampler_of(admin: FakeAdmin) -> LagSampler:
    return LagSampler(services_over(FakeClients(admin), SETTINGS))


def test_sampling_begins_with_the_first_look_and_is_shared() -> None:
    async def looks() -> int:
        admin = full_admin()
        sampler = sampler_of(admin)
        first = await sampler.of(Login("ann"))
        assert first.has_round
        assert await sampler.of(Login("ann")) is first
        assert await sampler.of(Login("bob")) is not first
        sampler.forget(Login("ann"))
        assert await sampler.of(Login("ann")) is not first
        await sampler.close()
        return len(admin.named("list_groups"))

    assert asyncio.run(looks()) == 3


def test_a_page_need_not_wait_for_the_first_round() -> None:
    class SlowAdmin(FakeAdmin):
        async def list_groups(self) -> list[GroupListing]:
            await gate.wait()
            return []

    async def look() -> None:
        sampler = sampler_of(SlowAdmin(describe_client_quotas=[]))
        samples = await sampler.of(Login("ann"), wait_s=0.0)
        assert not samples.has_round
        gate.set()
        assert (await sampler.of(Login("ann"))).has_round
        await sampler.close()

    gate = asyncio.Event()
    asyncio.run(look())


def test_a_first_round_that_is_refused_is_told_and_tried_again() -> None:
    async def look() -> None:
        admin = full_admin(list_groups=kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no"))
        sampler = sampler_of(admin)
        with pytest.raises(KafkaError, match="no"):
            await sampler.of(Login("ann"))
        admin.answers["list_groups"] = []
        assert (await sampler.of(Login("ann"))).has_round
        await sampler.close()

    asyncio.run(look())


def test_snapshots_come_late_rather_than_hold_a_page() -> None:
    async def run() -> None:
        clock = ManualClock()
        snapshots = Snapshots(clock)
        gate = asyncio.Event()

        async def load() -> int:
            await gate.wait()
            return 7

        assert await snapshots.get("k", load, wait_s=0.0) is None
        gate.set()
        assert await snapshots.get("k", load, wait_s=5.0) == 7
        assert await snapshots.get("k", fail, wait_s=5.0) == 7  # fresh
        clock.advance(10_000)
        assert await snapshots.get("k", fail, wait_s=5.0) == 7  # asked for behind the page
        assert await snapshots.get("refused", fail, wait_s=5.0) is None
        assert await snapshots.get("k", load, wait_s=5.0) is None  # what was asked came
        clock.advance(70_000)
        assert await snapshots.get("k", load, wait_s=5.0) == 7
        await snapshots.close()

    async def fail() -> int:
        raise kafka_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")

    asyncio.run(run())


def test_an_admin_without_groups_asks_for_no_offsets() -> None:
    admin = FakeAdmin(describe_topics={"flights": topic("flights")}, describe_client_quotas=[])
    samples = GroupSamples()
    asyncio.run(samples.take(admin, 0.0, 0.0))
    assert admin.named("list_offsets") == []
