"""A log dir returns with an old log of a replica that was created again in another log dir."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest

from headwater.errors import KafkaError
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_dir import topic_id_in
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


@pytest.mark.parametrize("how", ["DeleteRecords", "retention"])
@pytest.mark.parametrize("dirs", [("/a", "/b"), ("/b", "/a")])
def test_a_copy_whose_records_were_all_deleted_is_kept_for_its_end(
    dirs: tuple[str, str], how: str
) -> None:
    """Consumers have committed what lies below: its offsets are not given out again."""
    box = Box(dirs=dirs)
    log = box.log()
    log.append_as_leader(batch(5), 3, 2000)
    away(box, log.path.rpartition("/")[0])
    path = made_anew(box)
    log = box.log(retention_ms="1000")
    log.append_as_leader(batch(9), 5, 2000)
    if how == "DeleteRecords":
        log.delete_records_before(9)
    else:
        assert log.retain(1_000_000) == 1
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    away(box, None)
    found = box.manager.get("t", 0)
    assert found is not None
    assert (found.path, found.log_end_offset) == (path, 9)


OLD_ID, NEW_ID, THIRD_ID = TOPIC_ID, UUID(int=8), UUID(int=9)


def deleted_and_made_anew(box: Box, old_records: int = 9) -> dict[str, str]:
    """The topic was deleted and made anew while the folder of its log was away, which is back now.
    Gives back the paths of the old topic's log and of the new one's."""
    log = box.log()
    log.append_as_leader(batch(old_records), 7, 2000)
    old = log.path
    away(box, old.rpartition("/")[0])
    log = box.log(topic_id=NEW_ID)
    log.append_as_leader(batch(2), 0, 2000)
    log.append_as_leader(batch(3), 0, 2000)
    assert log.path != old
    away(box, None)
    return {"old": old, "new": log.path}


def names(box: Box, path: str) -> list[str]:
    """Folders in use and strays of what was at `path`."""
    folder, _, name = path.rpartition("/")
    return [found for found in box.files.names(folder) if found.startswith(name)]


@pytest.mark.parametrize("dirs", [("/a", "/b"), ("/b", "/a")])
@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("wanted", ["new", "old"])
def test_of_two_topics_logs_the_one_is_used_that_the_cluster_names(
    dirs: tuple[str, str], restarts: int, wanted: str
) -> None:
    box = Box(dirs=dirs)
    paths = deleted_and_made_anew(box)
    for _ in range(restarts):
        box.manager.checkpoint_recovery_points()
        box.files.crash()
        box.open_manager()
    assert [names(box, path) for path in paths.values()] == [["t-0"], ["t-0"]]
    topic_id = NEW_ID if wanted == "new" else OLD_ID
    seen = box.manager.find("t", topic_id, 0)
    log = box.manager.get_or_create("t", topic_id, 0, CONFIG, is_new=False)
    assert log is seen is box.manager.get("t", 0)
    assert (log.path, log.topic_id) == (paths[wanted], topic_id)
    assert log.log_end_offset == (5 if wanted == "new" else 9)
    other = paths["old" if wanted == "new" else "new"]
    (aside,) = names(box, other)
    assert aside.endswith("-stray")
    log.append_as_leader(batch(1), 8, 2000)
    assert box.crash(tear=1 << 20).path == paths[wanted]


def test_logs_that_nobody_named_are_closed_cleanly_and_keep_their_checkpoints() -> None:
    box = Box(dirs=("/a", "/b"))
    paths = deleted_and_made_anew(box)
    points = {}
    for path in paths.values():
        folder = path.rpartition("/")[0]
        points[folder] = box.files.read(f"{folder}/recovery-point-offset-checkpoint")
    assert sorted(points.values()) == [b"0\n1\nt 0 5\n", b"0\n1\nt 0 9\n"]
    box.manager.close(6)
    for folder, content in points.items():
        assert box.files.read(f"{folder}/recovery-point-offset-checkpoint") == content


def test_a_copy_of_the_deleted_topic_is_deleted_where_it_is() -> None:
    box = Box(dirs=("/a", "/b"))
    paths = deleted_and_made_anew(box)
    old = box.manager.find("t", OLD_ID, 0)
    assert old is not None
    box.manager.delete(old)
    assert [name[-7:] for name in names(box, paths["old"])] == ["-delete"]
    assert box.manager.find("t", OLD_ID, 0) is None
    log = box.manager.get_or_create("t", NEW_ID, 0, CONFIG, is_new=False)
    assert (log.path, log.log_end_offset) == (paths["new"], 5)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_set_aside_goes_with_its_topic_and_with_no_other(restarts: bool) -> None:
    """It was space lost for ever: the deletion of its topic came when it was set aside already."""
    box = Box()
    for topic_id in (OLD_ID, NEW_ID, THIRD_ID):  # each is set aside when the next one comes
        box.log(topic_id=topic_id).append_as_leader(batch(9), 0, 2000)
    if restarts:
        box.files.crash(tear=1 << 30)
        box.open_manager()
    box.manager.delete_replica("t", UUID(int=99), 0)
    box.manager.delete_replica("t", OLD_ID, 1)
    box.manager.delete_replica("u", OLD_ID, 0)
    assert [name[-6:] for name in names(box, "/d/t-0")[1:]] == ["-stray", "-stray"]
    box.manager.delete_replica("t", OLD_ID, 0)
    left = sorted(name.rpartition("-")[2] for name in names(box, "/d/t-0"))
    assert left == ["0", "delete", "stray"]
    box.manager.maintain_files()
    box.clock.advance(59_999)
    box.manager.maintain_files()
    assert len(names(box, "/d/t-0")) == 3, "file.delete.delay.ms"
    box.clock.advance(2)
    box.manager.maintain_files()
    log = box.manager.get("t", 0)
    assert log is not None and (log.topic_id, log.log_end_offset) == (THIRD_ID, 9)
    (stray,) = names(box, "/d/t-0")[1:]
    assert topic_id_in(box.files, f"/d/{stray}") == NEW_ID
    box.files.remove(f"/d/{stray}/partition.metadata")
    box.manager.delete_replica("t", NEW_ID, 0)
    assert names(box, "/d/t-0")[1:] == [stray], "it does not tell whose it is"


def test_what_a_newer_version_set_aside_stays_and_hinders_no_deletion() -> None:
    """It ended the whole StopReplica request, each time that the controller sent it."""
    box = Box()
    for topic_id in (OLD_ID, NEW_ID):
        box.log(topic_id=topic_id)
    _, stray = names(box, "/d/t-0")
    box.files.write_atomic(f"/d/{stray}/partition.metadata", b"version: 9\n")
    box.manager.delete_replica("t", OLD_ID, 0)
    assert names(box, "/d/t-0") == ["t-0", stray]


def test_a_deletion_of_what_was_set_aside_is_asked_for_until_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    for topic_id in (OLD_ID, NEW_ID):
        box.log(topic_id=topic_id)
    rename = box.files.rename

    def out_of_descriptors(source: str, target: str) -> None:
        rename(source, target)
        raise OSError(errno.EMFILE, "too many open files")  # for the fsync of the folder

    for refusal in (_fails, out_of_descriptors):
        with monkeypatch.context() as patch:
            patch.setattr(box.files, "rename", refusal)
            with pytest.raises(OSError):
                box.manager.delete_replica("t", OLD_ID, 0)
    box.manager.delete_replica("t", OLD_ID, 0)
    box.manager.maintain_files()
    box.clock.advance(60_001)
    box.manager.maintain_files()
    assert names(box, "/d/t-0") == ["t-0"]


@pytest.mark.parametrize("failing", ["old", "new"])
def test_a_folder_that_fails_takes_its_copy_only(failing: str) -> None:
    box = Box(dirs=("/a", "/b"))
    paths = deleted_and_made_anew(box)
    lost: list[str] = []
    box.manager.on_offline.append(lambda folder, logs: lost.extend(log.path for log in logs))
    log = box.manager.find("t", OLD_ID if failing == "old" else NEW_ID, 0)
    assert log is not None
    box.files.failing_prefix = paths[failing].rpartition("/")[0]
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(1), 8, 2000)
    assert lost == [paths[failing]]
    if failing == "old":
        log = box.manager.get_or_create("t", NEW_ID, 0, CONFIG, is_new=False)
        assert (log.path, log.log_end_offset) == (paths["new"], 5)
        return
    with pytest.raises(KafkaError, match="offline"):
        box.manager.get_or_create("t", NEW_ID, 0, CONFIG, is_new=False)
    assert box.manager.get("t", 0) is None, "no empty log stands for the one that is away"


def test_an_older_topics_log_does_not_hide_that_the_replica_may_be_on_a_disk_that_is_away() -> None:
    box = Box(dirs=("/a", "/b"))
    paths = deleted_and_made_anew(box)
    away(box, paths["new"].rpartition("/")[0])
    with pytest.raises(KafkaError, match="offline"):
        box.manager.get_or_create("t", NEW_ID, 0, CONFIG, is_new=False)
    away(box, None)
    log = box.manager.get_or_create("t", NEW_ID, 0, CONFIG, is_new=False)
    assert (log.path, log.log_end_offset) == (paths["new"], 5)


def test_a_log_that_cannot_be_set_aside_takes_its_folder_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the new log of that name would begin with the old one's records."""
    box = Box(dirs=("/a", "/b"))
    log = box.log()
    log.append_as_leader(batch(9), 0, 2000)
    with monkeypatch.context() as patch:
        patch.setattr(box.files, "rename", _fails)
        new = box.log(topic_id=NEW_ID)
    assert new.path != log.path and new.log_end_offset == 0
    assert box.manager.offline_directories == [log.path.rpartition("/")[0]]


def _fails(old: str, new: str) -> None:
    raise OSError(errno.EIO, "input/output error")


def test_a_copy_that_was_taking_its_logs_place_is_not_lost_to_an_older_topics_log() -> None:
    """The crash came between the two renames of a move, and the disk that was away comes back."""
    box = Box(dirs=("/a", "/b", "/c"))
    log = box.log()
    log.append_as_leader(batch(9), 7, 2000)
    old = log.path
    away(box, old.rpartition("/")[0])
    log = box.log(topic_id=NEW_ID)
    log.append_as_leader(batch(5), 0, 2000)
    box.manager.close(5)
    folder, target = log.path, next(d for d in box.dirs if d not in (old[:2], log.path[:2]))
    box.files.rename(folder, f"{folder}.0f-delete")
    for name in box.files.names(f"{folder}.0f-delete"):
        data = box.files.read(f"{folder}.0f-delete/{name}")
        box.files.write_atomic(f"{target}/t-0.0f-future/{name}", data)
    box.files.failing_prefix = None
    box.open_manager()
    found = box.manager.get_or_create("t", NEW_ID, 0, CONFIG, is_new=False)
    assert (found.path, found.log_end_offset) == (f"{target}/t-0", 5)
