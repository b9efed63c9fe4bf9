"""DuckDB is closed: it sees the tables it is given and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import UsageError
from headwater_gateway.console.sql.engine import ROWS_MAX, SqlEngine

SECRET = "the secret of a file"


@pytest.fixture
def engine() -> SqlEngine:
    found = SqlEngine()
    found.add("flights", pa.table({"n": [1, 2, 3], "s": ["a", None, "c"]}))
    found.add("my-topic", pa.table({"n": [1]}))
    return found


def test_a_query_over_given_tables(engine: SqlEngine) -> None:
    found = engine.run('SELECT f.n, s FROM flights f JOIN "my-topic" USING (n)')
    assert (found.columns, found.rows, found.has_more) == (["n", "s"], [(1, "a")], False)


def test_the_tables_that_a_query_needs() -> None:
    fresh = SqlEngine()
    assert fresh.tables_of('SELECT * FROM flights f, "my-topic"') == ["flights", "my-topic"]
    assert fresh.tables_of("WITH z AS (SELECT 1) SELECT * FROM z") == []


def test_rows_are_limited(engine: SqlEngine) -> None:
    found = engine.run(f"SELECT * FROM range({ROWS_MAX + 5})")
    assert len(found.rows) == ROWS_MAX and found.has_more


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "COPY flights TO '{folder}/out.csv'",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD '{file}'",
        "SET enable_external_access=true",
        "SET lock_configuration=false",
        "SET memory_limit='100GB'",
        "PRAGMA database_size; SELECT 1",
        "SELECT getenv('HOME')",
        "SELECT * FROM SECRET",
    ],
)
def test_no_way_out(engine: SqlEngine, tmp_path: Path, query: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(SECRET)
    asked = query.format(file=file, folder=tmp_path)
    with pytest.raises(UsageError) as caught:
        engine.tables_of(asked)
        engine.run(asked)
    assert SECRET not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("query", ["selec", "SELECT 1; SELECT 2", "", "SELECT * FROM nothing"])
def test_a_bad_query_is_one_error(engine: SqlEngine, query: str) -> None:
    with pytest.raises(UsageError):
        engine.tables_of(query)
        engine.run(query)
