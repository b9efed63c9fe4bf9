"""A producer's spool: what it sends lies on its disk until it is safe, also at another site.

A chunk is safe when it is acknowledged, and, where the topic is mirrored, when the mirror's
position has passed its records. The rest is sent again to the site that takes over, which stores
each record once by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from city.ledger import Ranges


@dataclass
class Chunk:
    """Records of one topic that were sent together."""

    topic: str
    rows: Any
    """The records' rows in the world."""
    path: Path
    ranges: Ranges | None = None
    """Where they are in the log; None until they are acknowledged."""

    def table(self) -> pa.Table:
        """The records, from the disk."""
        with pa.memory_map(str(self.path)) as source:
            return pa.ipc.open_file(source).read_all()

    def is_passed(self, positions: Mapping[int, int]) -> bool:
        """True when a mirror with these positions has all of its records."""
        if self.ranges is None:
            return False
        return all(positions.get(p, 0) >= end for p, (_, end) in self.ranges.items())


class Spool:
    """The chunks of one producer that are not safe yet, in the order of their sending."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._chunks: dict[int, Chunk] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[Chunk]:
        return iter(list(self._chunks.values()))

    def put(self, topic: str, rows: Any, table: pa.Table) -> Chunk:
        """Keep records before they are sent."""
        path = self._folder / f"{self._next:07d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        chunk = Chunk(topic, rows, path)
        self._chunks[self._next] = chunk
        self._next += 1
        return chunk

    def release(self, positions: Mapping[str, Mapping[int, int]] | None) -> int:
        """Drop chunks that are safe: all acknowledged ones, or, with positions of a mirror by
        topic, those that it has passed. How many."""
        safe = [
            number
            for number, chunk in self._chunks.items()
            if chunk.ranges is not None
            and (positions is None or chunk.is_passed(positions.get(chunk.topic, {})))
        ]
        for number in safe:
            self._chunks.pop(number).path.unlink()
        return len(safe)
