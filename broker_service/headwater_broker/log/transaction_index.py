"""The aborted transactions of a segment (`.txnindex`, Kafka's TransactionIndex, version 0).

Entries of 34 bytes: int16 version, int64 producer id, first offset, last offset (of the marker),
last stable offset when it was aborted.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from operator import attrgetter
from typing import NamedTuple

from headwater.ports.files import Files
from headwater_broker.log.checkpoint_files import check_version
from headwater_broker.log.lazy_file import LazyFile

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction; `last_offset` is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


_last_offset = attrgetter("last_offset")


class TransactionIndex(LazyFile):
    """Aborted transactions in the order of their markers. An empty index has no file."""

    def __init__(self, files: Files, path: str, *, exists: bool) -> None:
        super().__init__(files, path)
        self._entries: list[AbortedTransaction] | None = None if exists else []

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All entries. A cut-off last one is dropped, from the file too, as others may follow."""
        if self._entries is None:
            data = self._files.read(self.path)
            self._entries = decode_aborted(data, self.path)
            if len(data) % ENTRY.size:
                self._open().truncate(len(self._entries) * ENTRY.size)
        return self._entries

    @property
    def is_empty(self) -> bool:
        """True when there are no entries, as far as that is known without the file."""
        return self._entries is not None and not self._entries

    def add(self, aborted: AbortedTransaction) -> None:
        """Append an entry."""
        self.entries.append(aborted)
        self._open().append(ENTRY.pack(VERSION, *aborted))

    def truncate(self, offset: int) -> None:
        """Keep transactions whose marker is below `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) < len(self.entries):
            self._open().truncate(len(kept) * ENTRY.size)
            self._entries = kept

    def collect(self, start: int, upper: int, into: list[AbortedTransaction]) -> bool:
        """Add the entries that overlap [start, upper); True when no later entry can.

        A transaction that began below the last stable offset of an entry has its marker before that
        entry's.
        """
        entries = self.entries
        for at in range(bisect_left(entries, start, key=_last_offset), len(entries)):
            entry = entries[at]
            if entry.first_offset < upper:
                into.append(entry)
            if entry.last_stable_offset >= upper:
                return True
        return False


def decode_aborted(data: bytes, path: str = "transaction index") -> list[AbortedTransaction]:
    """The entries of a .txnindex file. Raises UsageError for an entry of a newer version."""
    whole = memoryview(data)[: len(data) // ENTRY.size * ENTRY.size]
    entries = []
    for version, *fields in ENTRY.iter_unpack(whole):
        check_version(str(version), VERSION, path)
        entries.append(AbortedTransaction(*fields))
    return entries
