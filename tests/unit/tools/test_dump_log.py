"""dump-log prints the entries of a log's files, and names damage."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from headwater.cli.main import EXIT_USAGE, run_command
from headwater.records.batch import compute_crc, read_header
from headwater.system_files import SystemFiles
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_broker.log.log_manager import LogManager
from headwater_broker.tools.dump_log import dump_log, rows_of
from unit.log.harness import batch


def written(folder: Path) -> Path:
    manager = LogManager(
        SystemFiles(),
        [str(folder)],
        broker_id=1,
        cluster_id="c",
        clock=ManualClock(),
        entropy=SeededEntropy(),
        broker_properties={},
        offload=lambda job: job(),
    )
    config = manager.log_config({"index.interval.bytes": "1", "segment.bytes": "500"})
    log = manager.get_or_create("t", UUID(int=7), 0, config, is_new=True)
    for sequence in range(9):
        log.append_as_leader(batch(producer_id=3, epoch=0, sequence=sequence), 2, 2000)
    manager.close()
    return folder / "t-0"


def run(*arguments: str) -> tuple[int, list[dict[str, object]]]:
    result = CliRunner().invoke(dump_log, [*arguments, "--json"])
    return result.exit_code, [json.loads(line) for line in result.output.splitlines()]


def test_every_file_of_a_data_folder_is_readable(tmp_path: Path) -> None:
    folder = written(tmp_path)
    files = [p for p in (*folder.iterdir(), *tmp_path.iterdir()) if p.is_file()]
    shown = [p for p in files if not p.name.startswith(".")]
    code, rows = run(*map(str, shown))
    assert code == 0, rows
    batches = [row for row in rows if "baseOffset" in row]
    assert sorted(row["baseOffset"] for row in batches) == list(range(9))
    assert {row["startOffset"] for row in rows if "startOffset" in row} == {0}
    assert [row for row in rows if "lastSequence" in row]
    assert [row for row in rows if row["file"].endswith(".index")]


def refusal(capsys: pytest.CaptureFixture[str], *paths: Path) -> str:
    """What is said of paths that are bad input; nothing is dumped."""
    assert run_command(dump_log, [str(path) for path in paths]) == EXIT_USAGE
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def test_what_is_no_file_of_a_log_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path)
    good = folder / f"{0:020d}.log"
    for name in ("abc.index", "².timeindex", "notes.txt"):
        (tmp_path / name).write_bytes(b"\0" * 24)
    assert "named by its first offset" in refusal(capsys, good, tmp_path / "abc.index")
    assert "named by its first offset" in refusal(capsys, tmp_path / "².timeindex")
    assert "not a file of a log" in refusal(capsys, good, tmp_path / "notes.txt")
    assert f"{folder} is a folder" in refusal(capsys, folder)
    assert "no such file" in refusal(capsys, folder / "none.log")


@pytest.mark.parametrize("suffix", [".deleted", ".cleaned", ".swap"])
def test_files_put_aside_are_read_as_what_they_are(tmp_path: Path, suffix: str) -> None:
    folder = written(tmp_path)
    for kind in (".log", ".index", ".timeindex"):
        path = folder / f"{0:020d}{kind}"
        (_, before), aside = run(str(path)), Path(f"{path}{suffix}")
        path.rename(aside)
        found = [{**row, "file": str(path)} for row in run(str(aside))[1]]
        assert found == before and before


def faults(path: Path, *options: str) -> list[object]:
    """Of the rows of a file that is damaged, None where they are not."""
    code, rows = run(str(path), *options)
    assert code == 1, rows
    return [row.get("damage") for row in rows]


def test_offsets_that_do_not_rise_are_damage(tmp_path: Path) -> None:
    """A batch's CRC does not cover its offset."""
    path = written(tmp_path) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[8:12], "big") + 12
    data[2 * size : 2 * size + 8] = (0).to_bytes(8, "big")
    path.write_bytes(data)
    found = faults(path)
    assert found[2] == "offsets do not rise: 1 was before it"
    assert found[:2] == [None, None] and not any(found[3:]) and len(found) > 3


def test_an_index_that_no_broker_would_use_is_damaged(tmp_path: Path) -> None:
    index, times = tmp_path / f"{5:020d}.index", tmp_path / f"{5:020d}.timeindex"
    index.write_bytes(struct.pack(">6i", 1, 100, 2, 50, 3, 200))
    assert faults(index) == [None, "entries do not rise", None]
    times.write_bytes(struct.pack(">qiqi", 1000, 3, 1000, 4))
    assert faults(times) == [None, "entries do not rise"]


def test_small_files_that_are_cut_off_or_empty_are_damaged(tmp_path: Path) -> None:
    aborted, meta = tmp_path / f"{0:020d}.txnindex", tmp_path / "meta.properties"
    aborted.write_bytes(struct.pack(">hqqqq", 0, 1, 2, 3, 4) + b"12345")
    assert faults(aborted) == [None, "5 bytes after the last whole entry"]
    meta.write_bytes(b"")
    assert faults(meta) == ["there are no properties"]
    for name in ("leader-epoch-checkpoint", "partition.metadata", f"{0:020d}.snapshot"):
        for data in (b"", b"0\n\xb2", b"0\n\xc2\xb2\n"):
            (tmp_path / name).write_bytes(data)
            assert len(faults(tmp_path / name)) == 1, (name, data)


def test_a_batch_whose_records_cannot_be_read_hides_none_behind_it(tmp_path: Path) -> None:
    path = written(tmp_path) / f"{0:020d}.log"
    data = memoryview(bytearray(path.read_bytes()))
    size = read_header(data).size_bytes
    data[57:61] = (9).to_bytes(4, "big")
    data[17:21] = compute_crc(data, 0, size).to_bytes(4, "big")
    path.write_bytes(data)
    found = faults(path, "--records")
    assert found[0] is None and "batch at offset 0" in str(found[1])
    assert len(found) > 3 and not any(found[2:])


def test_a_file_that_is_gone_by_now_leaves_the_others(tmp_path: Path) -> None:
    gone = tmp_path / f"{0:020d}.log"
    assert list(rows_of(gone)) == [{"damage": "not readable: No such file or directory"}]


def test_records_and_damage(tmp_path: Path) -> None:
    path = written(tmp_path) / f"{0:020d}.log"
    code, rows = run(str(path), "--records")
    assert (code, rows[1]["key"], rows[1]["value"]) == (0, "k", "v" * 10)
    data = bytearray(path.read_bytes())
    data[75] ^= 1
    path.write_bytes(data[:-5])
    code, rows = run(str(path))
    assert code == 1
    assert next(row["damage"] for row in rows if "damage" in row) == "the CRC does not match"
    assert "cut off" in str(rows[-1]["damage"])
