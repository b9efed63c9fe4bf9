"""What `headwater verify-sink` reads: checkpoints, Delta's log, parts of records."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from deltalake.transaction import CommitProperties, Transaction

from headwater.errors import UsageError
from headwater_spark.sink.commit_metadata import CommitMetadata, read_commit
from headwater_spark.sink_verification import CheckpointFacts, TableCommit, TableFacts
from headwater_spark.verify_command import (
    counted,
    part_of,
    read_checkpoint,
    read_table,
    verify_sink,
)
from headwater_tier.delta import TableAccessError
from headwater_tier.delta_readers import UsersTable


def test_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"q"}')
    assert read_checkpoint(str(tmp_path)) == CheckpointFacts("q", None, None)
    for folder, names in (("offsets", ("0", "1", "10", ".10.crc")), ("commits", ("0", "9"))):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    expected = CheckpointFacts("q", planned=10, committed=9)
    assert read_checkpoint(str(tmp_path)) == expected
    assert read_checkpoint(tmp_path.as_uri() + "/") == expected


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no checkpoint"):
        read_checkpoint(str(tmp_path))


def test_a_table(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    rows = pa.table({"id": [1, 2, 2]})
    write_deltalake(uri, rows)
    for ticket, epoch in ((3, 0), (4, None), (6, 1)):
        for sink in ("mine", "other"):
            metadata = {"userMetadata": CommitMetadata(sink, epoch, ticket).text()}
            properties = CommitProperties(metadata, app_transactions=[Transaction(sink, ticket)])
            write_deltalake(uri, rows, mode="append", commit_properties=properties)
    table = UsersTable(uri, {})
    commits = (TableCommit(1, 0, 3), TableCommit(3, None, 4), TableCommit(5, 1, 6))
    assert read_table(table, "mine") == TableFacts(commits, app_version=6)
    assert read_table(table, "nobody") == TableFacts((), None)
    assert counted(table.column("id")) == {"1": 7, "2": 14}
    with pytest.raises(TableAccessError, match="no column 'absent', it has: id"):
        table.column("absent")


def test_merged_without_a_key_is_refused() -> None:
    found = CliRunner().invoke(verify_sink, ["--checkpoint", "c", "--topic", "t", "--merged"])
    assert isinstance(found.exception, UsageError)
    assert "give --key, --table and --topic" in str(found.exception)


def test_a_table_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(TableAccessError, match="there is no Delta table at"):
        UsersTable(str(tmp_path / "table"), {})


def test_the_part_of_a_record_that_is_compared() -> None:
    rows = pa.record_batch({"key": [b"k", None], "value": [b'{"id":7}', b'{"id":"7"}']})
    assert counted(part_of("key")(rows)) == {"k": 1, None: 1}
    assert counted(part_of("value")(rows)) == {'{"id":7}': 1, '{"id":"7"}': 1}
    assert counted(part_of("value.id")(rows)) == {"7": 2}
    with pytest.raises(UsageError, match="no JSON field 'no'"):
        part_of("value.no")(rows)
    with pytest.raises(UsageError, match="must be key, value or"):
        part_of("header")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"headwater": 1}', json.dumps({"x": 1})])
def test_metadata_of_others(text: str | None) -> None:
    assert read_commit(text) is None


def test_metadata_of_a_sink() -> None:
    fence = CommitMetadata("s", None, 9)
    assert read_commit(fence.text()) == fence
