"""Followers that hold all there is: their fetches pass a partition by until something moves there.

A fetch session names thousands of partitions once and then only changes (KIP-227). What is left is
to look at those alone that moved: a partition tells whoever is registered with it. Pure.
"""

from __future__ import annotations

from typing import Protocol

OWN_FETCHER = -1
"""Who fetches for this replica registers under this id; followers elsewhere under theirs."""


class CaughtUpFollower(Protocol):
    """Somebody who passes a partition by."""

    def wake(self) -> None:
        """There is data, or a role, epoch or log has changed: look at it in the next fetch, and
        now if one is parked. It is not registered any more."""
        ...

    def state_updated(self) -> None:
        """High watermark, log start or ISR moved: the next fetch looks; nobody waits for that, and
        thousands of ISRs may change while a fetch is parked. It stays registered."""
        ...


class CaughtUpFollowers:
    """Who passes one partition by, by replica id. Falsy while that is nobody."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, CaughtUpFollower] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, replica_id: int, row: CaughtUpFollower) -> None:
        """Register. Another row of the same replica (an older session's) gives way."""
        older = self._rows.get(replica_id)
        self._rows[replica_id] = row
        if older is not None and older is not row:
            older.wake()

    def drop(self, replica_id: int, row: CaughtUpFollower) -> None:
        """Unregister `row`, unless another has taken its place."""
        if self._rows.get(replica_id) is row:
            del self._rows[replica_id]

    def wake_all(self) -> None:
        """Everybody must look again."""
        if self._rows:
            rows, self._rows = self._rows, {}
            for row in rows.values():
                row.wake()

    def state_updated(self) -> None:
        """Everybody has something to be told."""
        for row in self._rows.values():
            row.state_updated()
