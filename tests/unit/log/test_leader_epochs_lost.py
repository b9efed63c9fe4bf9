"""A leader-epoch-checkpoint that is gone or cannot be read is made anew from the batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater_broker.log.checkpoints import LEADER_EPOCHS
from headwater_broker.log.partition_log import PartitionLog
from unit.log.harness import Box, batch

ALL_THAT_IS_LOOSE = 1 << 30
PATH = f"/d/t-0/{LEADER_EPOCHS}"
EPOCHS = [(2, 0), (3, 10), (7, 25)]
LOST: dict[str, Callable[[Box], None]] = {
    "missing": lambda box: box.files.remove(PATH),
    "unreadable": lambda box: box.files.write_atomic(PATH, b"0\n2\n2 0\n"),
}


def filled(box: Box) -> PartitionLog:
    """Five segments and more, written in three leader epochs."""
    log = box.log(segment_bytes="600")
    for offset in range(40):
        epoch = max(epoch for epoch, start in EPOCHS if start <= offset)
        log.append_as_leader(batch(), epoch, 2000)
    assert len(log.bases) > 4
    return log


def reopened(box: Box) -> PartitionLog:
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
