"""A disk that fails under a fetch: an error of that partition, not the end of the connection."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.system_files import SystemFile
from headwater_broker.log.segment import SCAN_BYTES
from solo_broker import SoloBroker
from unit.server.test_data_plane import batch, fetch, produce, serve


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_that_are_found_but_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    read_at = SystemFile.read_at

    def fail(self: SystemFile, position: int, size: int) -> bytes:
        if size > SCAN_BYTES:
            raise OSError(errno.EIO, "input/output error", self.path)
        return read_at(self, position, size)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("bad")
        for _ in range(3):
            await produce(c, "bad", batch(5, 1000))
        assert (await fetch(c, "bad", 0, version=version)).error_code == 0
        monkeypatch.setattr(SystemFile, "read_at", fail)
        row = await fetch(c, "bad", 0, version=version)
        assert (row.error_code, row.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert not row.records
        assert broker.logs.offline_directories == [str(tmp_path)]

    serve(tmp_path, scenario)
