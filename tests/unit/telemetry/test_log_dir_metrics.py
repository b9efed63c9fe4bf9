"""Gauges of data folders: space on their disks, and those that failed."""

from __future__ import annotations

from headwater_broker.telemetry.replica_metrics import log_dir_metrics
from unit.telemetry.test_metrics import values


def space(path: str) -> tuple[int, int]:
    if path == "/gone":
        raise OSError("gone")
    return 100, 40


def test_a_failed_folder_shows_no_space() -> None:
    folders = [("/a", True, []), ("/failed", False, []), ("/gone", True, [])]
    assert values(log_dir_metrics(folders, space)) == {
        ("headwater_log_dir_online", ("/a",)): 1,
        ("headwater_log_dir_online", ("/failed",)): 0,
        ("headwater_log_dir_online", ("/gone",)): 1,
        ("headwater_log_dir_disk_bytes", ("/a",)): 100,
        ("headwater_log_dir_usable_bytes", ("/a",)): 40,
    }
