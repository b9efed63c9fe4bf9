"""A missing or damaged leader-epoch-checkpoint is rebuilt from the batches."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headwater.errors import KafkaError
from headwater_broker.log.checkpoint_files import LEADER_EPOCHS, decode_epochs
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.replica.loop_steps import begin_epoch, run_now
from unit.log.harness import Box, batch

ALL_THAT_IS_LOOSE = 1 << 30
PATH = f"/d/t-0/{LEADER_EPOCHS}"
EPOCHS = [(2, 0), (3, 10), (7, 25)]
LOST: dict[str, Callable[[Box], None]] = {
    "missing": lambda box: box.files.remove(PATH),
    "unreadable": lambda box: box.files.write_atomic(PATH, b"0\n2\n2 0\n"),
}


def filled(box: Box) -> UnifiedLog:
    """Five segments and more, written in three leader epochs."""
    log = box.log(segment_bytes="600")
    for offset in range(40):
        epoch = max(epoch for epoch, start in EPOCHS if start <= offset)
        log.append_as_leader(batch(), epoch, 2000)
    assert len(log.bases) > 4
    return log


def reopened(box: Box) -> UnifiedLog:
    box.open_manager()
    log = box.manager.get("t", 0)
    assert log is not None
    return log


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("how", LOST)
def test_epochs_come_from_all_segments(how: str, clean: bool) -> None:
    box = Box()
    filled(box)
    if clean:
        box.manager.close(5)
    else:
        box.manager.checkpoint_recovery_points()
        box.files.crash(tear=ALL_THAT_IS_LOOSE)
    LOST[how](box)
    log = reopened(box)
    assert (log.epochs.entries, log.latest_epoch) == (EPOCHS, 7)
    assert any("leader epochs" in note for note in log.recovered)
    assert b"7 25" in box.files.read(PATH), "written at once"


def test_records_deleted_from_the_front_are_no_history() -> None:
    box = Box()
    filled(box).delete_records_before(12)
    box.manager.close(5)
    box.files.remove(PATH)
    assert reopened(box).epochs.entries == [(3, 12), (7, 25)]


def test_a_new_log_without_batches_has_lost_nothing() -> None:
    box = Box()
    box.log()
    log = box.restart()
    assert (log.epochs.entries, log.recovered) == ([], [])


@pytest.mark.parametrize("is_leader", [True, False])
def test_an_epoch_that_could_not_be_written_is_written_by_the_next_try(
    monkeypatch: pytest.MonkeyPatch, is_leader: bool
) -> None:
    """Records of an epoch that no checkpoint knows would hide where two logs part."""
    box = Box()
    log = box.log()

    def begin() -> None:
        if is_leader:
            run_now(begin_epoch(log, 3))
        else:
            log.append_as_follower(batch(base_offset=0, leader_epoch=3))

    def refuse(path: str, data: bytes) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    with monkeypatch.context() as patch, pytest.raises(KafkaError):
        patch.setattr(box.files, "write_atomic", refuse)
        begin()
    begin()
    assert decode_epochs(box.files.read(f"{log.path}/{LEADER_EPOCHS}")) == [(3, 0)]


def test_epochs_cut_with_a_log_start_that_a_power_loss_sets_back() -> None:
    """Without them a follower could not be told where its log parts from its leader's."""
    box = Box()
    log = box.log(segment_bytes="600")
    for offset in range(40):
        if offset == 38:
            log.fsync_now()
            box.manager.checkpoint_recovery_points()
            box.manager.checkpoint_log_starts()
        log.append_as_leader(batch(), max(e for e, start in EPOCHS if start <= offset), 2000)
    log.delete_records_before(39)
    assert log.epochs.entries == [(7, 39)]
    log = box.crash(tear=0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 38)
    assert log.epochs.entries == EPOCHS
