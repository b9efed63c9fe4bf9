"""A Delta table of a user's own, to be read only: an adapter for deltalake beside `delta`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from headwater_tier.delta import STORAGE_ERRORS, TableAccessError


class UsersTable:
    """A table of a user's own, to be read only: its rows, and what its commits say."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        """Open the newest version. Raises TableAccessError."""
        self.uri = uri
        with self._errors("opening"):
            self._table = DeltaTable(uri, storage_options=dict(storage_options))

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
