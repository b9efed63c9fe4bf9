"""`python -m headwater_tier.remote_log_worker`: process of low priority that reads log tables for a
broker.

Requests and answers are frames of a 4-byte big-endian length and JSON, on stdin and stdout; EOF
ends the process. Requests: `ranges` (tiered offsets), `build` (one row group as a file of record
batches: `rebuilt_segments`), `find` (the first record at or after a timestamp), `check` (missing
files). An answer has the request's `id` and either `result` or `error`.
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
from headwater.errors import HeadwaterError
from headwater_tier.delta import TableAccessError, table_exists
from headwater_tier.reader import OffsetNotTieredError, RowRange, TableReader
from headwater_tier.rebuilt_segments import rebuild_segment
from headwater_tier.table_names import TableLocation

NICENESS = 10
"""Reads of old offsets must not slow the broker down."""
TABLES_MAX = 64
LENGTH = struct.Struct(">I")

logger = logging.getLogger(__name__)


class Worker:
    """Executes requests; keeps the TABLES_MAX most recently used tables open."""

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
        if not table_exists(location):  # nothing is tiered yet, or the table was removed
            self._readers.pop(location, None)
            return {}
        snapshot = self._refreshed(location).snapshot
        return {str(p): [snapshot.starts.get(p, 0), end] for p, end in snapshot.ends.items()}

    def _build(
        self, location: TableLocation, partition: int, offset: int, path: str
    ) -> dict[str, Any]:
        return rebuild_segment(self._read(location, partition, offset), path)

    def _read(self, location: TableLocation, partition: int, offset: int) -> RowRange:
        """Read from the open version, or from the newest if that fails.

        A file may have been compacted and vacuumed since, or the offset was tiered later.
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
            self._readers.pop(location, None)  # the next request must run the checks again
            raise
        return reader


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests one after the other until EOF."""
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
    """Lower the priority, reserve stdout for frames, compile the encoder, serve requests."""
    os.nice(NICENESS)
    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    encode.warm_up()
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
