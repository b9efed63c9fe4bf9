"""Delta tables that are only read: the history of a log table, a table of a user's own.

An adapter for deltalake beside `delta`, which commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headwater.security.store_options import opened
from headwater_tier.delta import COMMIT_KIND, STORAGE_ERRORS, TableAccessError, access_errors
from headwater_tier.table_names import TableLocation, end_txn


class LogHistory:
    """The versions of a log table that its log still has, and their tiered ends. Reads only."""

    def __init__(self, location: TableLocation) -> None:
        """Open the newest version. Raises TableAccessError without a table."""
        self.location = location
        with access_errors(location, "opening"):
            self._table = DeltaTable(location.uri, storage_options=opened(location.storage_options))
            found = self._table.history()
        self.committed_ms = {row["version"]: int(row["timestamp"]) for row in reversed(found)}
        """Version -> time of its commit, oldest first."""
        self.kinds = {row["version"]: str(row.get(COMMIT_KIND, "")) for row in found}
        """Version -> kind of Headwater's change; empty for a commit of others."""

    def ends_at(self, version: int, partitions: Iterable[int]) -> dict[int, int]:
        """The tiered ends in this version; without those it does not have. Raises
        TableAccessError."""
        topic_id = self.location.topic_id
        with access_errors(self.location, f"opening version {version} of"):
            self._table.load_as_version(version)
            found = {p: self._table.transaction_version(end_txn(topic_id, p)) for p in partitions}
        return {partition: end for partition, end in found.items() if end is not None}

    def end_at(self, version: int, partition: int) -> int:
        """The tiered end in this version; 0 without one. Raises TableAccessError."""
        return self.ends_at(version, [partition]).get(partition, 0)


class UsersTable:
    """A table of a user's own, to be read only: its rows, and what its commits say."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        """Open the newest version. Raises TableAccessError."""
        self.uri = uri
        with self._errors("opening"):
            self._table = DeltaTable(uri, storage_options=opened(storage_options))

    def history(self) -> list[dict[str, Any]]:
        """The commitInfo of every commit that the log still has, newest first."""
        with self._errors("reading the history of"):
            return list(self._table.history())

    def version_of(self, app_id: str) -> int | None:
        """The version of an application transaction; None without one."""
        return self._table.transaction_version(app_id)

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column. Raises TableAccessError when it does not exist."""
        with self._errors(f"reading column {name!r} of"):
            names = [field.name for field in self._table.schema().fields]
            if name not in names:
                columns = ", ".join(names)
                raise TableAccessError(f"{self.uri} has no column {name!r}, it has: {columns}")
            return self._table.to_pyarrow_table(columns=[name]).column(name)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError as error:
            raise TableAccessError(f"there is no Delta table at {self.uri}") from error
        except (*STORAGE_ERRORS, KeyError) as error:
            raise TableAccessError(f"{doing} {self.uri} failed: {error}") from error
