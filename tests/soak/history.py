"""The recorded history: JSON lines, one event per line, each with a monotonic time.

Every event has `t` (seconds since the run began) and `e` (its kind). `c` is the client, `p` the
partition, `v` a value's identity, `o` an offset, `x` a transaction.

| e | fields | meaning |
|---|---|---|
| send | c p v (x) | a producer is about to send a record |
| ack | c p v o | it was acknowledged at that offset (-1: the offset is not known) |
| fail | c p v why definite | it failed; `definite`: it cannot be in the log |
| thrown | c why | a client got an error that no correct broker sends |
| end | c x how | a transaction's end: commit, abort, or unknown (no answer) |
| assign | c p=[...] (g) | a consumer reads on from its start position or its group's commit |
| poll | c p rows=[[o, v], ...] (g) | the records of one poll |
| commit | c g p o ok t0 | a group's offset commit, sent at `t0`; ok false: outcome unknown |
| final | p rows=[[o, v], ...] | a whole partition, read after the last fault and the last send |
| replica | p b bytes sha | a partition's bytes on a broker's disk at the end |
| fault | what | an injection or a healing |
| stuck | why | the cluster or a client did not go on within its limit |
| stood_still | c why | a client of librdkafka that hung by a bug of its own (why: which) |

Partitions of the transacted topic are numbered from `TRANSACTED_FROM` on, those of its copies from
`COPIED_FROM` on.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]

VALUE_BYTES = 100
TRANSACTED_FROM = 100
COPIED_FROM = 200
TORN = "!"
"""The first character of the identity of a value with other bytes than were sent."""
EXCERPT_ROWS_MAX = 5
EXCERPT_CHARS_MAX = 400


class History:
    """Appends events to a file, from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._out = open(path, "w", buffering=1 << 16)  # noqa: SIM115 - closed by `close`

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def add(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        with self._lock:
            line = {"t": round(self.now(), 4), "e": kind, **fields}
            self._out.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Flush and close the file."""
        with self._lock:
            self._out.close()


def read(path: Path) -> Iterator[Event]:
    """The events of a file in their order."""
    with open(path) as lines:
        for line in lines:
            yield json.loads(line)


def lines_of(path: Path, numbers: Iterable[int]) -> dict[int, Event]:
    """Events by their line number (from 0)."""
    wanted = set(numbers)
    return {n: event for n, event in enumerate(read(path)) if n in wanted}


def excerpt(event: Event, about: Iterable[int | str]) -> str:
    """One event as a line to print. Of long rows only those about these offsets and values."""
    shown = dict(event)
    rows = event.get("rows")
    if rows is not None:
        wanted = set(about)
        near = [row for row in rows if row[0] in wanted or row[1] in wanted]
        shown["rows"] = near[:EXCERPT_ROWS_MAX]
        shown["of_rows"] = len(rows)
        shown["span"] = [rows[0][0], rows[-1][0]] if rows else []
    return json.dumps(shown, separators=(",", ":"))[:EXCERPT_CHARS_MAX]


def encode(identity: str) -> bytes:
    """The bytes of a value: its identity, a checksum, and padding."""
    return f"{identity}:{zlib.crc32(identity.encode()):08x}".ljust(VALUE_BYTES, ".").encode()


def decode(value: bytes | None) -> str:
    """The identity in a value's bytes. It begins with `TORN` if they are not those that were
    sent."""
    text = (value or b"").decode("latin-1")
    identity, _, _ = text.rpartition(":")
    if value is not None and encode(identity) == value:
        return identity
    return TORN + text[:60]
