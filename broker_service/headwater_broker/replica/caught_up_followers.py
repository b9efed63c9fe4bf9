"""Caught-up followers of a partition: their fetches skip it until something changes there. Pure.

A fetch session names thousands of partitions once and then only the changes (KIP-227). What
remains is to look at changed partitions only: a partition wakes the followers registered with it.
"""

from __future__ import annotations

from typing import Protocol

OWN_FETCHER = -1
"""Id under which this replica's own fetcher registers; other followers use their broker id."""


class CaughtUpFollower(Protocol):
    """A follower whose fetches skip a partition."""

    def wake(self) -> None:
        """Records were appended, or leadership, epoch or log changed: look at the partition in the
        next fetch, and now if a fetch is delayed. The follower is not registered any more."""
        ...

    def state_updated(self) -> None:
        """High watermark, log start or ISR changed: look at the partition in the next fetch. No
        delayed fetch is completed for it, as thousands of ISRs may change meanwhile. The follower
        stays registered."""
        ...


class CaughtUpFollowers:
    """The caught-up followers of one partition, by replica id. Falsy while there is none."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, CaughtUpFollower] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, replica_id: int, row: CaughtUpFollower) -> None:
        """Register. A row of the same replica (of an older fetch session) is woken and replaced."""
        older = self._rows.get(replica_id)
        self._rows[replica_id] = row
        if older is not None and older is not row:
            older.wake()

    def drop(self, replica_id: int, row: CaughtUpFollower) -> None:
        """Unregister `row`, unless another one has replaced it."""
        if self._rows.get(replica_id) is row:
            del self._rows[replica_id]

    def wake_all(self) -> None:
        """Wake every follower and unregister all."""
        if self._rows:
            rows, self._rows = self._rows, {}
            for row in rows.values():
                row.wake()

    def state_updated(self) -> None:
        """Pass the update to every follower."""
        for row in self._rows.values():
            row.state_updated()
