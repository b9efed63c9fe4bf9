"""TxnOffsetCommit at the group coordinator: verification, pending offsets, markers, failover."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers
from headwater_broker.coordinator.common.shard import Producer
from unit.coordinator.classic_group_machine import GROUP, Machine
from unit.coordinator.test_runtime import code_of
from unit.coordinator.transactional_groups import PRODUCER, Groups, T, play

OTHER = Producer(8, 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize(("commit", "wanted"), [(True, 9), (False, 3)])
def test_an_offset_counts_from_the_commit_of_its_transaction_on(
    *, commit: bool, wanted: int
) -> None:
    async def story(g: Groups) -> None:
        await g.commit(3)
        assert await g.transact(9) is ErrorCode.NONE
        [batch] = [h for b in g.log.batches[1:] for _, h in iter_headers(memoryview(b))]
        assert batch.is_transactional and batch.base_sequence == -1
        assert (batch.producer_id, batch.producer_epoch) == PRODUCER
        assert await g.committed() == 3
        unstable = await g.fetched(require_stable=True)
        assert (unstable.offset, unstable.error) == (-1, UNSTABLE)
        await g.end(commit=commit)
        assert await g.committed() == wanted and await g.is_stable()

    play(story)


@pytest.mark.parametrize("is_enlisting", [True, False])
def test_the_transaction_coordinator_is_asked_once_per_transaction(*, is_enlisting: bool) -> None:
    async def story(g: Groups) -> None:
        asked = ("app", PRODUCER, not is_enlisting)
        for offset in (1, 2, 3):
            await g.transact(offset, is_enlisting=is_enlisting)
        assert g.transactions.calls == [asked]
        await g.end(commit=True, bump=0)
        await g.transact(4, is_enlisting=is_enlisting)
        assert g.transactions.calls == [asked, asked], "another transaction"

    play(story)


def test_another_epoch_of_the_producer_is_asked_for_again() -> None:
    async def story(g: Groups) -> None:
        await g.transact(1)
        g.transactions.code = ErrorCode.PRODUCER_FENCED
        older = Producer(PRODUCER.producer_id, PRODUCER.producer_epoch - 1)
        assert await code_of(g.transact(2, older)) is ErrorCode.PRODUCER_FENCED

    play(story)


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
)
def test_what_the_transaction_coordinator_refuses_is_not_appended(code: ErrorCode) -> None:
    async def story(g: Groups) -> None:
        g.transactions.code = code
        with pytest.raises(KafkaError, match=r"'app'.*__consumer_offsets-0 is not part") as caught:
            await g.transact(9)
        assert caught.value.code is code
        assert g.log.batches == [] and await g.is_stable()
        g.transactions.code = ErrorCode.NONE
        assert await g.transact(9) is ErrorCode.NONE

    play(story)


@pytest.mark.parametrize(
    ("bump", "code"), [(0, ErrorCode.TRANSACTION_ABORTABLE), (1, ErrorCode.INVALID_PRODUCER_EPOCH)]
)
def test_no_offset_comes_behind_the_marker_of_its_transaction(bump: int, code: ErrorCode) -> None:
    """Anomaly 16: the marker overtakes an offset whose verification is answered late. A marker of
    the same epoch (transaction version 1) makes the group coordinator ask again."""

    async def story(g: Groups) -> None:
        g.transactions.gate.clear()
        g.transactions.next_codes = [ErrorCode.TRANSACTION_ABORTABLE]
        late = asyncio.ensure_future(g.transact(9))
        while not g.transactions.calls:
            await asyncio.sleep(0)
        await g.end(commit=True, bump=bump)
        g.transactions.gate.set()
        assert await code_of(late) is code
        assert len(g.log.batches) == 1, "only the marker"
        assert await g.committed() == -1 and await g.is_stable()

    play(story)


def test_a_marker_makes_an_open_transaction_be_asked_for_again() -> None:
    async def story(g: Groups) -> None:
        await g.transact(8)
        both = asyncio.gather(g.end(commit=True, bump=0), g.transact(9))
        assert (await both)[1] is ErrorCode.NONE
        assert len(g.transactions.calls) == 2 and await g.committed() == 8
        assert not await g.is_stable()

    play(story)


def test_the_first_offset_of_a_transaction_waits_for_the_marker_of_the_one_before() -> None:
    """In transaction version 2 that marker has the epoch of the next transaction."""

    async def story(g: Groups) -> None:
        await g.transact(8)
        g.transactions.gate.clear()
        following = Producer(PRODUCER.producer_id, PRODUCER.producer_epoch + 1)
        waiting = asyncio.ensure_future(g.transact(9, following))
        while len(g.transactions.calls) < 2:
            await asyncio.sleep(0)
        await g.end(commit=True)
        g.transactions.gate.set()
        assert await waiting is ErrorCode.NONE
        assert await g.committed() == 8 and not await g.is_stable()
        await g.end(commit=True, producer=following)
        assert await g.committed() == 9

    play(story)


def test_a_marker_of_an_older_epoch_does_not_void_a_verification() -> None:
    async def story(g: Groups) -> None:
        g.transactions.gate.clear()
        waiting = asyncio.ensure_future(g.transact(9))
        while not g.transactions.calls:
            await asyncio.sleep(0)
        await g.end(commit=True, bump=-1)
        g.transactions.gate.set()
        assert await waiting is ErrorCode.NONE and not await g.is_stable()

    play(story)


def test_a_verification_does_not_outlive_its_shard() -> None:
    async def story(g: Groups) -> None:
        g.transactions.gate.clear()
        late = asyncio.ensure_future(g.transact(9))
        while not g.transactions.calls:
            await asyncio.sleep(0)
        await g.lead()
        g.transactions.gate.set()
        assert await code_of(late) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert g.log.batches == []
        assert await g.transact(9) is ErrorCode.NONE

    play(story)


@pytest.mark.parametrize("commit", [True, False])
def test_open_offsets_are_loaded_as_pending(*, commit: bool) -> None:
    """Anomaly 18."""

    async def story(g: Groups) -> None:
        await g.transact(9)
        await g.lead()
        assert not await g.is_stable()
        asked = len(g.transactions.calls)
        await g.transact(10)
        assert len(g.transactions.calls) == asked, "it is open in the log"
        await g.lead()
        await g.end(commit=commit)
        for _ in range(2):
            assert await g.committed() == (10 if commit else -1) and await g.is_stable()
            assert [group.group_id for group in g.service.coordinated()] == ["g"] * commit
            await g.lead()

    play(story)


@pytest.mark.parametrize("commit", [True, False])
def test_a_plain_commit_after_a_pending_offset_wins(*, commit: bool) -> None:
    """Anomaly 17: compaction keeps the higher log offset, so it must count in memory, too."""

    async def story(g: Groups) -> None:
        await g.transact(9)
        await g.commit(4)
        for _ in range(2):
            assert await g.committed() == 4
            assert not await g.is_stable(), "until the marker, as in Kafka"
            await g.lead()
        await g.end(commit=commit)
        for _ in range(2):
            assert await g.committed() == 4 and await g.is_stable()
            await g.lead()

    play(story)


def test_the_later_of_two_transactions_wins_whatever_ends_first() -> None:
    async def story(g: Groups) -> None:
        await g.transact(8)
        await g.transact(9, OTHER)
        await g.end(commit=True, producer=OTHER)
        assert await g.committed() == 9 and not await g.is_stable()
        await g.lead()
        await g.end(commit=True)
        assert await g.committed() == 9 and await g.is_stable()

    play(story)


def test_a_failover_amid_a_commit_keeps_what_the_log_keeps() -> None:
    async def story(g: Groups) -> None:
        g.log.is_held = True
        waiting = asyncio.ensure_future(g.transact(9))
        while not g.log.batches:
            await asyncio.sleep(0)
        g.log.depose()
        assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
        g.log.release()
        await g.lead()
        assert await g.transact(9) is ErrorCode.NONE, "the client's retry"
        await g.end(commit=True)
        assert await g.committed() == 9

    play(story)


def test_a_deleted_group_does_not_come_back_with_the_marker() -> None:
    async def story(g: Groups) -> None:
        await g.commit(3)
        await g.transact(9)
        assert await g.service.delete_group("g") is ErrorCode.NONE
        for _ in range(2):
            assert await g.is_stable() and g.service.coordinated() == []
            await g.lead()
        await g.end(commit=True)
        for _ in range(2):
            assert await g.committed() == -1 and g.service.coordinated() == []
            await g.lead()

    play(story)


def test_a_pending_offset_alone_can_be_deleted() -> None:
    async def story(g: Groups) -> None:
        await g.transact(9)
        assert await g.service.delete_offsets("g", [T]) == {T: ErrorCode.NONE}
        assert await g.is_stable()
        await g.end(commit=True)
        assert await g.committed() == -1

    play(story)


def test_a_group_needs_a_name_that_can_be_stored() -> None:
    async def story(g: Groups) -> None:
        assert await code_of(g.transact(9, group_id="")) is ErrorCode.INVALID_GROUP_ID
        assert g.transactions.calls == []
        long = "g" * 2**15
        assert await code_of(g.transact(9, group_id=long)) is ErrorCode.INVALID_GROUP_ID
        shard = g.runtime.shard(0)
        assert await code_of(g.commit(9, group_id=long)) is ErrorCode.INVALID_GROUP_ID
        assert g.runtime.shard(0) is shard, "not loaded again for a name that cannot be stored"

    play(story)


def test_an_offset_on_an_older_connection_is_late() -> None:
    """It would replace the newer one, or become part of the next transaction."""

    async def story(g: Groups) -> None:
        assert await g.transact(6, connection=2) is ErrorCode.NONE
        assert await code_of(g.transact(5, connection=1)) is ErrorCode.CONCURRENT_TRANSACTIONS
        await g.end(commit=False, bump=0)
        assert await code_of(g.transact(5, connection=1)) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await g.transact(9, connection=3) is ErrorCode.NONE
        await g.end(commit=True)
        assert await g.committed() == 9

    play(story)


def test_a_newer_epoch_may_have_an_older_connection() -> None:
    """Its instance may have connected long before it was initialised."""

    async def story(g: Groups) -> None:
        assert await g.transact(6, connection=2) is ErrorCode.NONE
        await g.end(commit=True)
        newer = Producer(PRODUCER.producer_id, PRODUCER.producer_epoch + 1)
        assert await g.transact(9, newer, connection=1) is ErrorCode.NONE

    play(story)


# -- membership


def test_a_member_commits_in_a_transaction_in_every_state_of_its_group() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    assert m.transactional_commit(5, leader, 2) is ErrorCode.NONE
    m.join(follower, protocols=(("range", b"other"),))  # preparing a rebalance
    assert m.transactional_commit(6, leader, 2) is ErrorCode.NONE
    m.join(leader)  # completing it
    assert m.transactional_commit(7, leader, 3) is ErrorCode.NONE
    assert m.transactional_commit(8, leader, 2) is ErrorCode.ILLEGAL_GENERATION
    m.end_transaction(commit=True)
    assert m.committed() == 7


@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "code"),
    [
        ("", -1, None, ErrorCode.NONE),
        ("nobody", 2, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 2, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ("LEADER", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("LEADER", 1, None, ErrorCode.ILLEGAL_GENERATION),
        ("LEADER", 2, None, ErrorCode.NONE),
    ],
)
def test_membership_is_checked_where_it_is_given(
    member_id: str, generation: int, instance_id: str | None, code: ErrorCode
) -> None:
    m = Machine()
    leader, _ = m.stable_pair()
    member_id = leader if member_id == "LEADER" else member_id
    found = m.transactional_commit(5, member_id, generation, instance_id=instance_id)
    assert found is code


def test_the_instance_of_another_member_is_fenced() -> None:
    m = Machine()
    member = m.replies[m.join(instance_id="i")].member_id
    m.sync(member, 1)
    fenced = m.transactional_commit(5, "other", 1, instance_id="i")
    assert fenced is ErrorCode.FENCED_INSTANCE_ID
    assert m.transactional_commit(5, member, 1, instance_id="i") is ErrorCode.NONE


def test_an_unknown_group_is_made_without_members_only() -> None:
    m = Machine()
    assert m.transactional_commit(5, "m", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert m.shard.groups == {}
    assert m.transactional_commit(5, "m", -1) is ErrorCode.NONE
    assert m.group.state.value == "Empty" and m.committed() == -1
    m.end_transaction(commit=False)
    assert m.shard.groups == {}, "nothing is left of it"


def test_large_metadata_is_refused_alone() -> None:
    m = Machine(offset_metadata_max_bytes=3)
    assert m.transactional_commit(5, metadata="four") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert m.shard.pending_offsets(GROUP) == set()
