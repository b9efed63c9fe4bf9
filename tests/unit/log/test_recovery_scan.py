"""The result of a recovery scan does not depend on the size of its reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.records.builder import BatchBuilder
from headwater.system_files import SystemFiles
from headwater_broker.log import log_loader
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_loader import LoadedLog, LoadRequest, LogLoader

NAME = "00000000000000000000.log"
NOW_MS = 1_795_000_000_000
LARGE = 700
"""Of one value: its batch is longer than a small read."""


def log_bytes() -> tuple[bytes, list[int]]:
    """Batches with and without a producer, small and large, and where each ends."""
    data, ends, offset = b"", [], 0
    for number, size in enumerate([5, 40, LARGE, 5, 5, LARGE, 90, 5]):
        builder = BatchBuilder()
        for _ in range(2):
            builder.append(NOW_MS + number, None, bytes(size))
        idempotent = number % 2
        data += builder.build(
            base_offset=offset,
            leader_epoch=number // 3,
            producer_id=9 if idempotent else -1,
            producer_epoch=0 if idempotent else -1,
            base_sequence=offset if idempotent else -1,
        )
        offset += 2
        ends.append(len(data))
    return data, ends


def loaded(folder: Path, data: bytes) -> LoadedLog:
    """The log as a start after a kill finds it."""
    for path in folder.iterdir():
        path.unlink()
    (folder / NAME).write_bytes(data)
    config = LogConfig.from_overrides({"index.interval.bytes": "100"})
    request = LoadRequest(str(folder), config, 0, 0, clean_stop=False, now_ms=NOW_MS)
    return LogLoader(SystemFiles(), request).load()


def shown(log: LoadedLog) -> object:
    """All that a scan makes."""
    [segment] = log.segments
    segment.offset_index.write()
    segment.time_index.write()
    names = (segment.offset_index.path, segment.time_index.path)
    return (
        log.log_end_offset,
        segment.file.size_bytes,
        segment.first_timestamp,
        segment.max_timestamp,
        log.epochs.entries,
        [Path(name).read_bytes() for name in names],
        [(known.epoch, known.batches) for known in log.producers.entries.values()],
    )


@pytest.mark.parametrize("chunk", [61, 100, 200, 333])
def test_small_reads_find_what_one_large_read_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    data, ends = log_bytes()
    cuts = [*range(0, len(data), 37), *ends, *(end - 1 for end in ends)]
    spoiled = [bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]]) for at in range(16, 2000, 61)]
    for found in [*(data[:cut] for cut in cuts), *spoiled]:
        with monkeypatch.context() as small:
            small.setattr(log_loader, "SCAN_CHUNK_BYTES", chunk)
            little = shown(loaded(tmp_path, found))
        assert little == shown(loaded(tmp_path, found))


def test_a_cut_log_ends_at_its_last_whole_batch(tmp_path: Path) -> None:
    data, ends = log_bytes()
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends)
        assert loaded(tmp_path, data[:cut]).log_end_offset == 2 * whole


def test_a_scanned_log_holds_one_descriptor_a_segment(tmp_path: Path) -> None:
    """As a running one that is not written: a broker that had descriptors for its logs before a
    kill has them after it, too."""
    data, ends = log_bytes()
    (tmp_path / f"{14:020d}.log").write_bytes(data[ends[6] :])
    (tmp_path / NAME).write_bytes(data[: ends[6]])
    config = LogConfig.from_overrides({"index.interval.bytes": "100"})
    request = LoadRequest(str(tmp_path), config, 0, 0, clean_stop=False, now_ms=NOW_MS)
    log = LogLoader(SystemFiles(), request).load()
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    names = [os.path.basename(path) for path in held if os.path.dirname(path) == str(tmp_path)]
    assert sorted(names) == [NAME, f"{14:020d}.log"]
    assert log.log_end_offset == 16
    assert [len(segment.offset_index) > 0 for segment in log.segments] == [True, False]
    for segment in log.segments:
        segment.close()
