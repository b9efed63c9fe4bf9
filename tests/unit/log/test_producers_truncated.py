"""Truncation of the end of a log undoes the producer state of the removed batches."""

from __future__ import annotations

from headwater_broker.log.producer_state_manager import Marker, Producers


def filled(batches: int, *, transactional: bool = False) -> Producers:
    """Producer 7 with `batches` batches of two records each, from offset 0 on."""
    producers = Producers()
    for n in range(batches):
        producers.apply_batch(7, 0, 2 * n, 2 * n, 1, 1000 + n, transactional=transactional)
    return producers


def test_batches_from_the_cut_on_are_forgotten() -> None:
    producers = filled(6)
    assert producers.truncate_end(8)
    entry = producers.entries[7]
    assert [b.last_offset for b in entry.batches] == [3, 5, 7]
    assert (entry.last_sequence, entry.last_timestamp) == (7, 1003)


def test_a_cut_above_everything_changes_nothing() -> None:
    producers = filled(3)
    assert producers.truncate_end(6)
    assert [b.last_offset for b in producers.entries[7].batches] == [1, 3, 5]


def test_when_no_remembered_batch_is_left_the_log_must_be_replayed() -> None:
    producers = filled(9)
    producers.apply_batch(8, 0, 0, 18, 0, 2000, transactional=False)
    assert not producers.truncate_end(4)
    assert len(producers.entries[7].batches) == 5, "nothing was changed"
    assert producers.entries[8].last_offset == 18


def test_transactions_are_replayed() -> None:
    assert not filled(3, transactional=True).truncate_end(4)
    producers = filled(2, transactional=True)
    producers.apply_marker(7, 0, Marker(True, 1), 4, 3000)
    producers.truncate_head(9)
    assert not producers.truncate_end(5)
