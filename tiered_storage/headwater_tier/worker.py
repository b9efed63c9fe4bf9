"""`python -m headwater_tier.worker`: the niced process that reads tables for a broker.

Speaks frames of a 4-byte big-endian length and JSON on stdin and stdout; ends at EOF. Requests:
`ranges`, `build` (rebuild one row group as a file of record batches), `find` (the first record at
or after a time), `check` (are files still there). Every answer repeats the request's `id` and holds
`result` or `error`.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import sys
from collections import OrderedDict
from typing import Any, BinaryIO
from uuid import UUID

from headwater.columnar import encode
from headwater.columnar.encode import arrow_to_batches
from headwater.errors import HeadwaterError
from headwater_tier.delta import TableAccessError, table_exists
from headwater_tier.plan import TableLocation
from headwater_tier.reader import OffsetNotTieredError, Stretch, TableReader

NICENESS = 10
"""Cold readers must not starve hot ones."""
TABLES_MAX = 64
BATCH_BYTES_MAX = 256 * 1024
"""Of a rebuilt batch: what a fetch with a small limit gets at least."""
LENGTH = struct.Struct(">I")

logger = logging.getLogger(__name__)


class Worker:
    """The requests' meaning; one table handle per location, the least used dropped."""

    def __init__(self) -> None:
        self._readers: OrderedDict[TableLocation, TableReader] = OrderedDict()

    def handle(self, request: dict[str, Any]) -> Any:
        """The result of one request. Raises HeadwaterError."""
        location = TableLocation(
            request["uri"],
            request["topic"],
            UUID(request["topic_id"]),
            tuple((k, v) for k, v in request["options"]),
        )
        match request["do"]:
            case "ranges":
                return self._ranges(location)
            case "build":
                return self._build(
                    location, request["partition"], request["offset"], request["path"]
                )
            case "find":
                return self._refreshed(location).first_at(
                    request["partition"],
                    request["timestamp_ms"],
                    request["start"],
                    request["end"],
                )
            case "check":
                return self._reader(location).missing_files(request["paths"])
        raise HeadwaterError(f"unknown request {request['do']!r}")

    def _ranges(self, location: TableLocation) -> dict[str, list[int]]:
        if not table_exists(location):  # nothing is tiered yet, or it is gone: the broker knows
            self._readers.pop(location, None)
            return {}
        snapshot = self._refreshed(location).snapshot
        return {str(p): [snapshot.starts.get(p, 0), end] for p, end in snapshot.ends.items()}

    def _build(
        self, location: TableLocation, partition: int, offset: int, path: str
    ) -> dict[str, Any]:
        stretch = self._read(location, partition, offset)
        batches = arrow_to_batches(
            stretch.rows,
            start_offset=stretch.start_offset,
            end_offset=stretch.end_offset,
            batch_bytes_max=BATCH_BYTES_MAX,
        )
        with open(path, "wb") as segment:
            segment.writelines(batch.data for batch in batches)
        return {
            "end": stretch.end_offset,
            "batches": [[batch.base_offset, len(batch.data)] for batch in batches],
            "sources": stretch.paths,
        }

    def _read(self, location: TableLocation, partition: int, offset: int) -> Stretch:
        """From the snapshot at hand; from the newest one when that can't serve.

        A file may have been compacted away and vacuumed since, or the offset be newer.
        """
        try:
            return self._reader(location).read(partition, offset)
        except (TableAccessError, OffsetNotTieredError):
            return self._refreshed(location).read(partition, offset)

    def _reader(self, location: TableLocation) -> TableReader:
        reader = self._readers.get(location)
        if reader is None:
            reader = self._readers[location] = TableReader(location)
            if len(self._readers) > TABLES_MAX:
                self._readers.popitem(last=False)
        self._readers.move_to_end(location)
        return reader

    def _refreshed(self, location: TableLocation) -> TableReader:
        known = location in self._readers
        try:
            reader = self._reader(location)
            if known:
                reader.refresh()
        except HeadwaterError:
            self._readers.pop(location, None)  # a failed check must be met again, not cached
            raise
        return reader


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until EOF, one after the other."""
    worker = Worker()
    while len(prefix := source.read(LENGTH.size)) == LENGTH.size:
        request = json.loads(source.read(LENGTH.unpack(prefix)[0]))
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer["result"] = worker.handle(request)
        except HeadwaterError as error:
            answer["error"] = str(error)
        except Exception as error:
            logger.exception("request %s failed", request.get("do"))
            answer["error"] = f"{type(error).__name__}: {error}"
        data = json.dumps(answer).encode()
        sink.write(LENGTH.pack(len(data)) + data)
        sink.flush()


def main() -> None:
    """Lower our priority, keep stdout for frames alone, warm up, serve."""
    os.nice(NICENESS)
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    encode.warm_up()
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
