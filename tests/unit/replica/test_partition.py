"""One partition: appends, acknowledgements, followers, ISR proposals, fencing."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater.wire.control import AlterPartitionResult, PartitionState
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.truncation import EpochEnd
from unit.replica.fake_log import TOPIC_ID, FakeLog, make_batch

LAG_S = 30


class Hosted:
    """A Partition on broker 1 with its proposals collected."""

    def __init__(self, log: FakeLog | None = None, checkpoint: int = 0) -> None:
        self.clock = ManualClock()
        self.log = log or FakeLog()
        self.proposals: list[tuple[int, ...]] = []
        self.partition = Partition(
            self.log,  # type: ignore[arg-type]
            1,
            self.clock,
            ReplicationConfig(replica_lag_time_max_ms=LAG_S * 1000),
            high_watermark=checkpoint,
            propose=lambda p: self.proposals.append(p.pending_isr or ()),
        )

    def lead(
        self, isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3), **kw: Any
    ) -> Partition:
        kw = {"leader_epoch": 4, "partition_epoch": 10, "min_isr": 1, **kw}
        min_isr = kw.pop("min_isr")
        self.partition.become_leader(state(isr=isr, replicas=replicas, **kw), min_isr)
        return self.partition

    def append(self, acks: int = -1, records: int = 1) -> int:
        return self.partition.append(make_batch(records=records), acks, 0).last_offset

    def fetched(self, replica: int, offset: int, epoch: int = -1, broker_epoch: int = 1) -> Any:
        return self.partition.update_follower(
            replica, broker_epoch, offset, self.clock.monotonic(), last_fetched_epoch=epoch
        )


def state(**kw: Any) -> PartitionState:
    return PartitionState(topic="t", topic_id=TOPIC_ID, partition=0, **{"leader_id": 1, **kw})


def code(call: Any, *args: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*args)
    return refused.value.code


def test_without_followers_an_append_is_committed_at_once() -> None:
    h = Hosted()
    moved: list[int] = []
    partition = h.lead((1,), (1,))
    partition.on_hw = lambda p: moved.append(p.high_watermark)
    partition.on_append = lambda p: pytest.fail("nobody replicates this")
    last = h.append(records=3)
    assert moved == [3]
    assert partition.outcome(last, 4) is ErrorCode.NONE
    assert h.log.offsets()[0][:2] == (0, 4)


def test_the_high_watermark_waits_for_every_member() -> None:
    h = Hosted()
    partition = h.lead()
    appended: list[int] = []
    partition.on_append = lambda p: appended.append(p.log.log_end_offset)
    last = h.append()
    assert appended == [1]
    assert partition.outcome(last, 4) is None
    h.fetched(2, 1)
    assert partition.outcome(last, 4) is None
    h.fetched(3, 0)
    assert partition.outcome(last, 4) is None
    h.fetched(3, 1)
    assert partition.outcome(last, 4) is ErrorCode.NONE


def test_an_isr_of_one_among_three_commits_alone_until_somebody_catches_up() -> None:
    h = Hosted()
    partition = h.lead((1,))
    h.append()
    assert partition.high_watermark == 1
    h.fetched(2, 1)
    assert h.proposals == [(1, 2)]
    h.append()
    assert partition.high_watermark == 1, "a proposed member counts"
    h.fetched(2, 2)
    assert partition.high_watermark == 2


def test_a_proposal_names_the_lives_that_were_in_sync_whenever_it_is_sent() -> None:
    """A follower that came back with less must not join by what its former life held."""
    h = Hosted()
    partition = h.lead((1,))
    h.append(records=3)
    h.fetched(2, 3, broker_epoch=5)
    assert h.proposals == [(1, 2)]
    h.fetched(2, 0, broker_epoch=6)
    item = partition.alter_partition_item(100)
    assert item is not None
    assert [(m.broker_id, m.broker_epoch) for m in item.new_isr] == [(1, 100), (2, 5)]
    refusal = AlterPartitionResult(
        topic_id=TOPIC_ID, partition=0, error_code=ErrorCode.INELIGIBLE_REPLICA
    )
    assert not partition.on_isr_result(item, refusal, 0.0)
    h.fetched(2, 1, broker_epoch=6)
    assert len(h.proposals) == 1, "it lacks what is committed"
    h.fetched(2, 3, broker_epoch=6)
    item = partition.alter_partition_item(100)
    assert item is not None
    assert [m.broker_epoch for m in item.new_isr] == [100, 6]


def test_reads_are_bounded_by_who_reads() -> None:
    h = Hosted()
    partition = h.lead((1, 2), (1, 2))
    h.append()
    h.append()
    h.fetched(2, 1)
    assert partition.read(1, 1000).size_bytes == 0
    assert partition.read(0, 1000).size_bytes == 62
    assert partition.read(0, 1000, replica=2).size_bytes == 124
    h.log.first_unstable_offset = 0
    assert partition.read(0, 1000, 1).size_bytes == 0
    assert partition.last_stable_offset == 0
    assert code(partition.read, 3, 1000) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.read(2, 1000).size_bytes == 0, "above the mark, within the log: no error"


def test_a_follower_is_never_served_from_the_table() -> None:
    h = Hosted()
    partition = h.lead((1, 2), (1, 2))
    for _ in range(3):
        h.append()
    h.log.local_log_start_offset = 2
    h.log.log_start_offset = 1
    moved = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert code(partition.read, 1, 1000, 0, True, 2) is moved
    assert code(partition.read, 0, 1000, 0, True, 2) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_min_insync_replicas_before_and_after_the_append() -> None:
    h = Hosted()
    partition = h.lead((1, 2), min_isr=2)
    last = h.append()
    partition.update_state(state(leader_epoch=4, partition_epoch=11, isr=(1,), replicas=(1, 2, 3)))
    assert code(h.append) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert h.log.log_end_offset == 1, "nothing was written"
    assert partition.outcome(last, 4) is None, "below the minimum nothing more is committed"
    assert h.append(acks=1) == 1
    partition.update_state(
        state(leader_epoch=4, partition_epoch=12, isr=(1, 2), replicas=(1, 2, 3))
    )
    h.fetched(2, 2)
    assert partition.outcome(last, 4) is ErrorCode.NONE
    partition.update_state(state(leader_epoch=4, partition_epoch=13, isr=(1,), replicas=(1, 2, 3)))
    assert partition.outcome(last, 4) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_lost_leadership_answers_what_is_parked_even_when_it_comes_back() -> None:
    h = Hosted()
    partition = h.lead((1, 2), (1, 2))
    told: list[int] = []
    partition.on_leadership = lambda p: told.append(p.leader_epoch)
    last = h.append()
    partition.become_follower(state(leader_id=2, leader_epoch=5, partition_epoch=11, isr=(1, 2)))
    assert partition.outcome(last, 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(h.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    h.lead((1,), (1, 2), leader_epoch=6, partition_epoch=12)
    assert partition.high_watermark == 1
    assert partition.outcome(last, 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told == [5, 6]


def test_the_epoch_start_is_known_before_the_first_append() -> None:
    h = Hosted()
    h.lead((1, 2))
    assert h.log.epochs.entries == [(4, 0)]
    h.append()
    h.lead((1, 2), leader_epoch=6, partition_epoch=11)
    assert h.log.epochs.entries == [(4, 0), (6, 1)]
    assert not h.partition.high_watermark_is_current
    h.fetched(2, 1)
    assert h.partition.high_watermark_is_current


def test_a_divergent_fetch_counts_for_nothing() -> None:
    h = Hosted()
    h.log.append_as_follower(_batch_at(0, 2))
    h.log.append_as_follower(_batch_at(1, 2))
    partition = h.lead((1, 2), (1, 2))
    assert h.fetched(2, 2, epoch=3) == EpochEnd(2, 2)
    assert partition.high_watermark == 0
    assert h.fetched(2, 2, epoch=2) is None
    assert partition.high_watermark == 2


def _batch_at(offset: int, epoch: int) -> memoryview:
    view = make_batch()
    from headwater.records.batch import patch_base_offset

    patch_base_offset(view, 0, offset, epoch)
    return view


def test_who_may_fetch_as_a_follower() -> None:
    h = Hosted()
    h.lead((1, 2), (1, 2))
    assert code(h.fetched, 9, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(h.fetched, 2, 1) is ErrorCode.OFFSET_OUT_OF_RANGE
    h.fetched(2, 0, broker_epoch=7)
    with pytest.raises(KafkaError, match="broker epoch 6"):
        h.fetched(2, 0, broker_epoch=6)
    h.partition.become_follower(state(leader_id=2, leader_epoch=5, partition_epoch=11, isr=(2,)))
    assert code(h.fetched, 2, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_other_epochs_are_fenced(told: int, expected: ErrorCode) -> None:
    h = Hosted()
    partition = h.lead()
    partition.check_leader_epoch(4)
    partition.check_leader_epoch(-1)
    assert code(partition.check_leader_epoch, told) is expected


def test_a_silent_follower_is_proposed_for_removal_and_the_mark_waits_for_the_answer() -> None:
    h = Hosted()
    partition = h.lead()
    h.append()
    h.fetched(2, 1)
    partition.isr_tick(h.clock.monotonic())
    assert h.proposals == []
    h.clock.advance((LAG_S + 1) * 1000)
    h.fetched(2, 1)
    partition.isr_tick(h.clock.monotonic())
    assert h.proposals == [(1, 2)]
    partition.isr_tick(h.clock.monotonic())
    assert h.proposals == [(1, 2)], "one at a time"
    assert partition.high_watermark == 0
    item = partition.alter_partition_item(99)
    assert item is not None
    assert [(m.broker_id, m.broker_epoch) for m in item.new_isr] == [(1, 99), (2, 1)]
    assert not partition.on_isr_result(item, answer((1, 2), 11), 0.0)
    assert (partition.isr, partition.partition_epoch) == ((1, 2), 11)
    assert partition.high_watermark == 1


def answer(isr: tuple[int, ...], partition_epoch: int, error: int = 0) -> AlterPartitionResult:
    return AlterPartitionResult(
        topic_id=TOPIC_ID, partition=0, error_code=error, leader_id=1, leader_epoch=4,
        partition_epoch=partition_epoch, isr=isr,
    )  # fmt: skip


def proposed() -> tuple[Hosted, Any]:
    h = Hosted()
    partition = h.lead((1,))
    h.fetched(2, 0)
    item = partition.alter_partition_item(1)
    assert partition.pending_isr == (1, 2)
    return h, item


def test_a_refused_member_is_proposed_again_only_after_the_pause() -> None:
    h, item = proposed()
    refused = answer((), -1, ErrorCode.INELIGIBLE_REPLICA)
    assert not h.partition.on_isr_result(item, refused, retry_at=5.0)
    assert h.partition.pending_isr is None
    h.fetched(2, 0)
    assert len(h.proposals) == 1
    h.clock.advance(6000)
    h.fetched(2, 0)
    assert len(h.proposals) == 2


def test_an_unknown_outcome_stays_pending_and_is_repeated() -> None:
    h, item = proposed()
    assert h.partition.on_isr_result(item, answer((), -1, ErrorCode.UNKNOWN_SERVER_ERROR), 1.0)
    assert h.partition.pending_isr == (1, 2)
    assert h.partition.alter_partition_item(1) == item


def test_a_fenced_proposal_waits_for_the_controller() -> None:
    h, item = proposed()
    assert not h.partition.on_isr_result(item, answer((), -1, ErrorCode.FENCED_LEADER_EPOCH), 1.0)
    assert h.partition.pending_isr == (1, 2)
    assert h.partition.alter_partition_item(1) is None
    h.append()
    assert h.partition.high_watermark == 0, "it may be in force: it counts"


def test_a_fenced_proposal_of_which_nobody_tells_is_made_again() -> None:
    """Whoever knew nothing of a new topic was a controller that was deposed."""
    h, item = proposed()
    assert not h.partition.on_isr_result(item, answer((), -1, ErrorCode.UNKNOWN_TOPIC_ID), 1.0)
    sent = len(h.proposals)
    h.partition.isr_tick(h.clock.monotonic())
    assert len(h.proposals) == sent + 1 and h.partition.alter_partition_item(1) == item
    h.partition.isr_tick(h.clock.monotonic())
    assert len(h.proposals) == sent + 1, "it is on its way"
    h.partition.on_isr_result(item, answer((1, 2), 11), 1.0)
    assert (h.partition.isr, h.partition.pending_isr) == ((1, 2), None)


def test_a_version_conflict_that_tells_the_state_settles_it() -> None:
    h, item = proposed()
    conflict = answer((1, 3), 12, ErrorCode.INVALID_UPDATE_VERSION)
    assert not h.partition.on_isr_result(item, conflict, 1.0)
    assert (h.partition.isr, h.partition.partition_epoch) == ((1, 3), 12)
    assert h.partition.pending_isr is None


def test_the_replicas_of_an_epoch_that_an_answer_told_come_with_leader_and_isr() -> None:
    """It is the same epoch: what was proposed in it meanwhile is in flight, and still counts."""
    h, item = proposed()
    h.partition.on_isr_result(item, answer((1, 3), 12, ErrorCode.INVALID_UPDATE_VERSION), 0.0)
    h.fetched(2, 0)
    item = h.partition.alter_partition_item(1)
    assert item is not None and h.partition.pending_isr == (1, 3, 2)
    sent = len(h.proposals)
    moved = {"isr": (1, 3), "replicas": (1, 2, 3, 4), "adding_replicas": (4,)}
    h.partition.update_state(state(leader_epoch=4, partition_epoch=12, **moved))
    assert (h.partition.replicas, h.partition.adding_replicas) == ((1, 2, 3, 4), (4,))
    h.fetched(4, 0)
    assert h.partition.pending_isr == (1, 3, 2) and h.partition.alter_partition_item(1) == item
    assert len(h.proposals) == sent + 1, "sent again, should it wait to be told"
    h.append()
    h.fetched(3, 1)
    h.fetched(4, 1)
    assert h.partition.high_watermark == 0, "2 may be a member by now"
    h.partition.on_isr_result(item, answer((1, 3, 2), 13), 0.0)
    h.fetched(2, 1)
    assert h.partition.high_watermark == 1


def test_an_invalid_proposal_is_dropped_when_it_was_judged_in_the_state_it_was_made_in() -> None:
    h, item = proposed()
    assert not h.partition.on_isr_result(item, answer((1,), 10, ErrorCode.INVALID_REQUEST), 5.0)
    assert h.partition.pending_isr is None
    h.append()
    assert h.partition.high_watermark == 1, "nothing waits for who cannot be a member"


def test_an_invalid_proposal_that_another_state_met_may_be_in_force() -> None:
    h, item = proposed()
    refused = AlterPartitionResult(
        topic_id=TOPIC_ID, partition=0, error_code=ErrorCode.INVALID_REQUEST, leader_id=-1,
        leader_epoch=4, partition_epoch=12, isr=(2,),
    )  # fmt: skip
    assert not h.partition.on_isr_result(item, refused, 5.0)
    assert h.partition.pending_isr == (1, 2) and h.partition.alter_partition_item(1) is None


def test_answers_that_leader_and_isr_has_overtaken_change_nothing() -> None:
    h, item = proposed()
    newer = state(leader_epoch=4, partition_epoch=12, isr=(1, 3), replicas=(1, 2, 3))
    h.partition.update_state(newer)
    assert not h.partition.on_isr_result(item, answer((1, 2), 11), 1.0)
    refused = answer((), -1, ErrorCode.INELIGIBLE_REPLICA)
    assert not h.partition.on_isr_result(item, refused, 1.0)
    assert h.partition.isr == (1, 3)
    h.lead((1,), leader_epoch=5, partition_epoch=13)
    assert not h.partition.on_isr_result(item, answer((1, 2), 20), 1.0)
    assert h.partition.isr == (1,)


def test_joining_waits_for_the_epoch_start_not_only_for_the_mark() -> None:
    log = FakeLog()
    log.append_as_follower(_batch_at(0, 2))
    log.append_as_follower(_batch_at(1, 2))
    h = Hosted(log)
    h.lead((1, 3))
    assert h.partition.high_watermark == 0
    h.fetched(2, 1, epoch=2)
    assert h.proposals == []
    h.fetched(2, 2, epoch=2)
    assert h.proposals == [(1, 3, 2)]


def test_followers_follow_the_leaders_marks() -> None:
    h = Hosted(checkpoint=9)
    partition = h.partition
    assert partition.high_watermark == 0
    partition.become_follower(state(leader_id=2, leader_epoch=4, partition_epoch=1, isr=(1, 2)))
    partition.append_as_follower(_batch_at(0, 4), 0, 0)
    partition.append_as_follower(_batch_at(1, 4), 1, 0)
    assert partition.high_watermark == 1
    partition.append_as_follower(memoryview(b""), 9, 1)
    assert (partition.high_watermark, h.log.log_start_offset) == (2, 1)
    partition.append_as_follower(memoryview(b""), 0, 0)
    assert partition.high_watermark == 2, "a new leader's mark may lag: ours does not fall"
    partition.truncate_to(1)
    assert partition.high_watermark == 1
    partition.restart_at(50)
    assert (partition.high_watermark, partition.log.log_end_offset) == (50, 50)


def test_a_failed_disk_takes_the_replica_offline() -> None:
    h = Hosted()
    partition = h.lead((1,), (1,))
    h.log.broken = h.log.is_closed = True
    assert code(h.append) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not partition.is_leader
    assert "Input/output error" in partition.offline_reason
    assert code(h.append) is ErrorCode.KAFKA_STORAGE_ERROR


def test_low_watermark_is_the_lowest_start_on_live_brokers_in_sync_or_not() -> None:
    h = Hosted()
    partition = h.lead((1, 2), (1, 2, 3))
    partition.update_follower(2, 1, 0, 0.0, log_start_offset=0)
    h.append()
    h.log.delete_records_before(1)
    assert partition.low_watermark({1, 2}) == 0
    partition.update_follower(2, 1, 1, 0.0, log_start_offset=1)
    assert partition.low_watermark({1, 2}) == 1
    assert partition.low_watermark({1, 2, 3}) == -1, "3 lags and lives: it has not told"
    partition.update_follower(3, 1, 1, 0.0, log_start_offset=1)
    assert partition.low_watermark({1, 2, 3}) == 1


def test_nothing_waits_for_a_follower_that_left() -> None:
    h = Hosted()
    partition = h.lead((1, 2))
    h.fetched(2, 0)
    partition.update_state(state(leader_epoch=4, partition_epoch=11, isr=(1,), replicas=(1, 2, 3)))
    h.append()
    assert partition.high_watermark == 1, "it was caught up a moment ago, but it is gone"


def test_a_follower_that_fetches_every_three_seconds_joins_under_load() -> None:
    h = Hosted()
    partition = h.lead((1,), (1, 2))
    held = 0
    for tick in range(200):
        h.append()
        if tick % 30 == 0:
            h.fetched(2, held)
            held = partition.log.log_end_offset
        if h.proposals:
            break
        h.clock.advance(100)
    assert h.proposals == [(1, 2)] and tick <= 90, "two intervals to know it, one to wait"


def test_one_pause_of_a_follower_is_no_habit_to_wait_for() -> None:
    h = Hosted()
    partition = h.lead((1,), (1, 2))
    h.append()
    for pause_ms in (0, 500, 500):
        h.clock.advance(pause_ms)
        h.fetched(2, 0)
    h.append()
    h.clock.advance(5000)
    h.fetched(2, 1)
    h.append()
    assert partition.high_watermark == 2, "it was caught up at its fetch before"
    h.clock.advance(1100)
    h.append()
    assert partition.high_watermark == 4


def test_nothing_waits_long_for_a_follower_that_fell_silent_before_it_joined() -> None:
    h, item = proposed()
    h.append()
    assert h.partition.high_watermark == 0
    refused = answer((), -1, ErrorCode.INELIGIBLE_REPLICA)
    h.partition.on_isr_result(item, refused, retry_at=5.0)
    assert h.partition.high_watermark == 1, "nothing waits for it, and at once"
    h.fetched(2, 1)
    h.append()
    assert h.partition.high_watermark == 2, "a refused follower may be stopping"
    h.clock.advance(6000)
    h.fetched(2, 1)
    h.append()
    assert h.partition.high_watermark == 2, "it fetches: it may reach the mark"
    h.clock.advance(1100)
    h.partition.isr_tick(h.clock.monotonic())
    assert h.partition.high_watermark == 3
