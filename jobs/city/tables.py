"""Reads the city's Delta tables with deltalake, without Spark: for the oracle and the proof."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from city.flows import City


def read_table(path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table's rows."""
    chosen = None if columns is None else list(columns)
    return DeltaTable(path).to_pyarrow_table(columns=chosen)


def newest_ms(path: str, column: str) -> int | None:
    """The newest time of a column, by the statistics in the table's log; None: no rows."""
    files = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    name = f"max.{column}"
    newest = pc.max(files[name]).as_py() if name in files.column_names else None
    return None if newest is None else round(newest.timestamp() * 1000)


def read_columns(city: City, topic: str, columns: Sequence[str]) -> pa.Table:
    """Columns of a topic's rows at all sites; a row that the first site has counts there."""
    wanted = [*dict.fromkeys(["record_id", *columns])]
    sites = [site for site in city.sites if site.has_table(topic)]
    tables = [read_table(site.table(topic), wanted) for site in sites]
    rows = tables[0]
    for table in tables[1:]:
        is_new = pc.invert(pc.is_in(table["record_id"], value_set=rows["record_id"]))
        rows = pa.concat_tables([rows, table.filter(is_new)])
    return rows
