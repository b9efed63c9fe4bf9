"""ISR shrinking: which replicas leave, and that waiting requests complete (B1-266, B1-271)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from headwater.errors import ErrorCode
from headwater_broker.replica.replica_manager import ReplicaManager
from headwater_broker.telemetry.replica_metrics import replica_metrics
from unit.replica.test_partition import LAG_S, Hosted, answer


def test_stuck_and_slow_followers_leave_in_one_shrink() -> None:
    """Stuck: it does not fetch. Slow: it fetches, and is never at the leader's end."""
    h = Hosted()
    partition = h.lead((1, 2, 3, 4), (1, 2, 3, 4))
    h.append()
    for follower in (2, 3, 4):
        h.fetched(follower, 1)
    for second in range(1, LAG_S + 2):
        h.clock.advance(1000)
        h.append(records=10)
        h.fetched(3, second)  # one record a second, of ten
        h.fetched(4, partition.log.log_end_offset)
    partition.isr_tick(h.clock.monotonic())
    assert h.proposals == [(1, 4)]


def test_the_isr_is_never_empty_and_its_shrink_releases_acks_all() -> None:
    h = Hosted()
    partition = h.lead()
    last = h.append()
    moved: list[int] = []
    partition.on_hw = lambda p: moved.append(p.high_watermark)
    h.clock.advance((LAG_S + 1) * 1000)
    partition.isr_tick(h.clock.monotonic())
    assert h.proposals == [(1,)], "the leader stays"
    assert partition.outcome(last, 4) is None, "the controller has not answered"
    item = partition.alter_partition_item(99)
    assert item is not None
    partition.on_isr_result(item, answer((1,), 11), 0.0)
    assert (partition.isr, partition.high_watermark, moved) == ((1,), 1, [1])
    assert partition.outcome(last, 4) is ErrorCode.NONE
    partition.isr_tick(h.clock.monotonic())
    assert len(h.proposals) == 1


def test_shrinks_and_expansions_are_metrics() -> None:
    replicas = SimpleNamespace(partitions={}, isr_shrinks_total=3, isr_expands_total=2)
    found = {
        sample.name: sample.value
        for family in replica_metrics(cast(ReplicaManager, replicas))
        for sample in family.samples
    }
    assert found["headwater_isr_shrinks_total"] == 3
    assert found["headwater_isr_expands_total"] == 2
