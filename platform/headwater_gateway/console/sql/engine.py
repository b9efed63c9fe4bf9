"""DuckDB, closed: it sees the tables that it is given and nothing else. The one adapter of duckdb.

No file, network, extension or attached database (`enable_external_access=false`), no setting that
a query could change (`lock_configuration=true`), no Python variable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from headwater.errors import UsageError

MEMORY_LIMIT = "512MB"
ROWS_MAX = 1000
SHOWN_CHARS = 600
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": MEMORY_LIMIT,
    "threads": "2",
    "temp_directory": "",
}
_CLOSED = (
    "SET python_enable_replacements=false",
    "SET autoload_known_extensions=false",
    "SET autoinstall_known_extensions=false",
    "SET TimeZone='UTC'",
    "SET enable_external_access=false",
    "SET lock_configuration=true",
)


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a query, up to ROWS_MAX. `has_more`: there are more."""

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]
    has_more: bool


class SqlEngine:
    """One connection in memory. Not thread-safe."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config=_CONFIG)
        for statement in _CLOSED:
            self._connection.execute(statement)

    def tables_of(self, query: str) -> list[str]:
        """The tables that a query names and that are not known yet. Raises UsageError for what is
        no single query."""
        try:
            statements = self._connection.extract_statements(query)
            if len(statements) != 1:
                raise UsageError(f"one query at a time: there are {len(statements)}")
            return sorted(self._connection.get_table_names(query))
        except duckdb.Error as error:
            raise UsageError(_complaint(error)) from None

    def add(self, name: str, table: pa.Table) -> None:
        """Make a table known by a name."""
        self._connection.register(name, table)

    def run(self, query: str) -> Result:
        """The result. Raises UsageError with DuckDB's complaint."""
        try:
            found = self._connection.execute(query)
            described = found.description or []
            rows = found.fetchmany(ROWS_MAX + 1)
        except duckdb.Error as error:
            raise UsageError(_complaint(error)) from None
        names = [str(column[0]) for column in described]
        types = [str(column[1]) for column in described]
        return Result(names, types, rows[:ROWS_MAX], len(rows) > ROWS_MAX)


def _complaint(error: Exception) -> str:
    return str(error).strip()[:SHOWN_CHARS]
