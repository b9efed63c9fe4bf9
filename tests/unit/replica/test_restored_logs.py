"""Logs of a restored cluster: they begin empty, above every offset that was given before."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import ErrorCode
from solo_broker import SoloBroker
from unit.replica.test_manager import A, codes, play, state, tell
from unit.replica.test_topics_made_anew import make

RESTORED = 10_000_600


def test_a_log_without_a_table_begins_at_its_restored_end(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        broker.restored_ends[A, 0] = RESTORED
        tell(broker, state(leader_epoch=103, is_new=True), state(partition=1))
        log = broker.replicas.lookup("a", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (RESTORED, RESTORED)
        assert broker.replicas.lookup("a", 0).high_watermark == RESTORED
        assert broker.replicas.lookup("a", 0).epoch_end(102).end_offset == RESTORED
        assert broker.replicas.lookup("a", 1).log.log_end_offset == 0

    play(tmp_path, story)


def test_a_log_with_a_table_keeps_its_history_before_that(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        broker.restored_ends[A, 0] = RESTORED
        row = state(leader_epoch=103, is_new=True)
        assert codes(make(broker, A, row, remote_storage_enable="true")) == [ErrorCode.NONE]
        log = broker.replicas.lookup("a", 0).log
        assert (log.log_start_offset, log.log_end_offset) == (0, RESTORED)

    play(tmp_path, story)


def test_the_larger_of_restored_and_tiered_end_counts(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        broker.restored_ends[A, 0] = RESTORED
        broker.tiered_ends[A, 0] = RESTORED + 5
        tell(broker, state(leader_epoch=103, is_new=True))
        assert broker.replicas.lookup("a", 0).log.log_end_offset == RESTORED + 5

    play(tmp_path, story)


def test_a_log_that_has_passed_its_restored_end_stays_as_it_is(tmp_path: Path) -> None:
    async def story(broker: SoloBroker) -> None:
        broker.restored_ends[A, 0] = RESTORED
        tell(broker, state(leader_epoch=103, is_new=True))
        broker.replicas.lookup("a", 0).log.truncate_fully_and_start_at(RESTORED + 7)
        tell(broker, state(leader_epoch=104))
        assert broker.replicas.lookup("a", 0).log.log_end_offset == RESTORED + 7

    play(tmp_path, story)
