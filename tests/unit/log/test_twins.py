"""A folder was away while its replica was made anew in another, and comes back with the old one."""

from __future__ import annotations

import pytest

from headwater.errors import KafkaError
from headwater_broker.log.config import LogConfig
from unit.log.harness import TOPIC_ID, Box, batch

CONFIG = LogConfig.from_overrides({})


def away(box: Box, folder: str | None) -> None:
    """The process ends, and begins again while this folder fails."""
    box.manager.close(5)
    box.files.failing_prefix = folder
    box.open_manager()


def made_anew(box: Box) -> str:
    """The folder of the replica that the controller has made anew."""
    with pytest.raises(KafkaError, match="offline"):
        box.manager.get_or_create("t", TOPIC_ID, 0, CONFIG, is_new=False)
    return box.log().path


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        # (leader epoch, records) in the order of appending
        ([(0, 28), (0, 3)], [(0, 28), (1, 2)], "new"),
        ([(0, 28), (0, 3)], [(0, 20)], "old"),
        ([(3, 5)], [(3, 9)], "new"),
        ([(3, 9)], [(3, 9)], "old"),
        ([(2, 4)], [], "old"),
        ([], [(5, 1)], "new"),
    ],
)
@pytest.mark.parametrize("dirs", [("/a", "/b"), ("/b", "/a")])
def test_the_copy_with_the_later_epoch_then_the_higher_end_is_kept(
    dirs: tuple[str, str], old: list[tuple[int, int]], new: list[tuple[int, int]], kept: str
) -> None:
    box = Box(dirs=dirs)
    log = box.log()
    first = log.path
    for epoch, count in old:
        log.append_as_leader(batch(count), epoch, 2000)
    ends = {"old": log.log_end_offset}
    box.manager.high_watermarks = lambda log: log.log_end_offset
    away(box, first.rpartition("/")[0])
    second = made_anew(box)
    assert second != first
    log = box.log()
    for epoch, count in new:
        log.append_as_leader(batch(count), epoch, 2000)
    ends["new"] = log.log_end_offset
    paths = {"old": first, "new": second}
    away(box, None)
    found = box.manager.get("t", 0)
    assert found is not None
    assert (found.path, found.log_end_offset) == (paths[kept], ends[kept])
    assert box.manager.high_watermark_checkpoint(found) <= found.log_end_offset
    loser = paths["new" if kept == "old" else "old"]
    folder, _, name = loser.rpartition("/")
    (aside,) = [n for n in box.files.names(folder) if n.startswith(name)]
    assert aside.endswith("-stray"), "kept for whoever wants to look"
