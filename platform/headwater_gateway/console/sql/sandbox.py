"""The process of one SQL query: it decodes the tables that it is handed, and answers in texts."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from headwater.errors import UsageError
from headwater.extras import install_hint
from headwater_gateway.console.messages.shown_text import FIELD_BYTES_MAX, compact
from headwater_gateway.console.processes.channel import (
    OUT_OF_MEMORY,
    AskedSchemas,
    Channel,
    settle,
)
from headwater_gateway.console.shown import visible
from headwater_gateway.console.sql.records_table import records_table
from headwater_tier.typed.decoding import DeclaredFormat

MEMORY_BYTES_MAX = 1536 * 1024 * 1024
"""DuckDB's own limit is within it."""
COLUMNS_MAX = 500
RESULT_CHARS_MAX = 4 * 1024 * 1024
"""Of all cells: the gateway reads the result on its one loop, which serves everybody."""
NAME_CHARS_MAX = 600
_ENGINE = "headwater_gateway.console.sql.engine"
"""Loaded in here only: its library is an extra of its own."""


def run_sandbox(sock: socket.socket) -> None:
    """The life of the process."""
    settle(MEMORY_BYTES_MAX)
    try:
        Sandbox(Channel(sock)).serve()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


class Sandbox:
    """Answers the requests of one query."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._schemas = AskedSchemas(channel)
        self._engine: Any = None
        self._answers: dict[str, Callable[..., dict[str, Any]]] = {
            "names": self.names,
            "table": self.table,
            "run": self.run,
        }

    def serve(self) -> None:
        """Until the gateway has gone."""
        while True:
            try:
                kind, *rest = self._channel.receive()
            except (EOFError, OSError):
                return
            try:
                answer = self._answers[kind](*rest)
            except UsageError as error:
                answer = {"refused": str(error)}
            self._channel.send(answer)

    def names(self, query: str) -> dict[str, Any]:
        """The tables that the query names."""
        return {"names": self._opened().tables_of(query)}

    def table(self, name: str, declared: DeclaredFormat | None, data: bytes) -> dict[str, Any]:
        """Make records known as a table."""
        records = pa.ipc.open_stream(data).read_all()
        found = records_table(records, self._schemas, declared)
        self._opened().add(name, found.table)
        columns = [(field.name, _cut(str(field.type))) for field in found.table.schema]
        return {"columns": columns, "note": visible(found.note)}

    def run(self, query: str) -> dict[str, Any]:
        """The result as texts."""
        found = self._opened().run(query)
        if len(found.columns) > COLUMNS_MAX:
            raise UsageError(
                f"the result has {len(found.columns)} columns: {COLUMNS_MAX} are the most, select"
                " those that you need"
            )
        rows = _shown_rows(found.rows)
        return {
            "columns": [visible(_cut(name)) for name in found.columns],
            "types": [_cut(kind) for kind in found.types],
            "rows": rows,
            "more": found.has_more or len(rows) < len(found.rows),
        }

    def _opened(self) -> Any:
        if self._engine is None:
            try:
                module = importlib.import_module(_ENGINE)
            except ModuleNotFoundError as error:
                if error.name != "duckdb":
                    raise
                raise UsageError(f"SQL needs duckdb: {install_hint('sql')}") from None
            self._engine = module.SqlEngine()
        return self._engine


def _shown_rows(rows: Iterable[Sequence[Any]]) -> list[list[list[str] | None]]:
    """The first rows, up to RESULT_CHARS_MAX of text."""
    shown: list[list[list[str] | None]] = []
    size = 0
    for row in rows:
        cells = [_cell(value) for value in row]
        size += sum(len(cell[1]) for cell in cells if cell is not None)
        if shown and size > RESULT_CHARS_MAX:
            break
        shown.append(cells)
    return shown


def _cut(text: str) -> str:
    """A column's name or type; that of a struct names all its fields."""
    return text if len(text) <= NAME_CHARS_MAX else text[:NAME_CHARS_MAX] + "…"


def _cell(value: Any) -> list[str] | None:
    """[kind, text], cut; None for NULL. A 64-bit number is a text, as JavaScript would round it."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text = compact(value) if isinstance(value, dict | list | bytes) else str(value)
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ", "milliseconds")  # the session is in UTC
    shown = visible(text[:FIELD_BYTES_MAX])
    return ["n" if is_number else "s", shown + ("…" if len(text) > FIELD_BYTES_MAX else "")]
