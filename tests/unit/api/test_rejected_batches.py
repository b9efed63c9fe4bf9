"""Which batches are rejected behind a rejected one, and for how long the broker remembers it."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder
from headwater_broker.api.rejected_batches import PLACES_MAX, STALE_MS, RejectedBatches
from headwater_broker.log.producer_state_manager import SEQUENCE_MAX, Producers

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
NOW_MS = 1_795_000_000_000


def batch(sequence: int, producer_id: int = 7, epoch: int = 0) -> memoryview:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"v")
    built = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return memoryview(built)


def known(last_sequence: int, epoch: int = 0) -> Producers:
    producers = Producers()
    producers.apply_batch(7, epoch, last_sequence, 100, 0, NOW_MS, transactional=False)
    return producers


def refused(sequence: int, epoch: int = 0) -> RejectedBatches:
    batches = RejectedBatches()
    batches.note("t", 0, batch(sequence, epoch=epoch), CODE, NOW_MS)
    return batches


def test_what_follows_is_refused_as_it_was() -> None:
    batches = refused(5)
    assert batches.before("t", 0, batch(6), known(4), NOW_MS) is CODE
    assert batches.before("t", 1, batch(6), known(4), NOW_MS) is None
    assert batches.before("t", 0, batch(6, producer_id=8), known(4), NOW_MS) is None
    assert batches.before("t", 0, batch(6, epoch=1), known(4), NOW_MS) is None


def test_the_refused_batch_ends_it() -> None:
    batches = refused(5)
    assert batches.before("t", 0, batch(5), known(4), NOW_MS) is None
    assert batches.before("t", 0, batch(9), known(5), NOW_MS) is None


def test_a_log_without_the_gap_ends_it() -> None:
    """The batch came by another leader: its successors and repetitions are in order."""
    for sequence in (9, 8, 3):
        assert refused(5).before("t", 0, batch(sequence), known(8), NOW_MS) is None


def test_it_holds_for_what_can_be_on_the_way() -> None:
    batches = refused(5)
    for sequence in range(6, 10):
        assert batches.before("t", 0, batch(sequence), known(4), NOW_MS) is CODE
        batches.note("t", 0, batch(sequence), CODE, NOW_MS)
    assert batches.before("t", 0, batch(10), known(4), NOW_MS) is None
    assert refused(5).before("t", 0, batch(6), known(4), NOW_MS + STALE_MS) is CODE
    assert refused(5).before("t", 0, batch(6), known(4), NOW_MS + STALE_MS + 1) is None


def test_refusals_behind_the_first_do_not_take_its_place() -> None:
    batches = refused(5)
    batches.note("t", 0, batch(6), ErrorCode.KAFKA_STORAGE_ERROR, NOW_MS)
    assert batches.before("t", 0, batch(7), known(4), NOW_MS) is CODE
    assert batches.before("t", 0, batch(5), known(4), NOW_MS) is None


def test_a_new_epoch_begins_anew() -> None:
    batches = refused(0, epoch=1)
    assert batches.before("t", 0, batch(1, epoch=1), known(4), NOW_MS) is CODE
    assert batches.before("t", 0, batch(0, epoch=1), known(4), NOW_MS) is None


def test_sequences_wrap_around() -> None:
    batches = refused(SEQUENCE_MAX)
    assert batches.before("t", 0, batch(0), known(SEQUENCE_MAX - 1), NOW_MS) is CODE
    assert batches.before("t", 0, batch(SEQUENCE_MAX), known(SEQUENCE_MAX - 1), NOW_MS) is None


def test_batches_without_a_producer_are_nothing_to_it() -> None:
    batches = RejectedBatches()
    for plain in (batch(-1, producer_id=-1), memoryview(b"short")):
        batches.note("t", 0, plain, CODE, NOW_MS)
        assert batches.before("t", 0, plain, Producers(), NOW_MS) is None


def test_it_is_bounded() -> None:
    batches = RejectedBatches()
    for partition in range(PLACES_MAX + 1):
        batches.note("t", partition, batch(5), CODE, NOW_MS)
    assert batches.before("t", 0, batch(6), known(4), NOW_MS) is None
    assert batches.before("t", 1, batch(6), known(4), NOW_MS) is CODE
