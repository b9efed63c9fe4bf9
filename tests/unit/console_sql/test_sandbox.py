"""What a query's process answers is bounded: the gateway reads it on the loop that serves all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import UsageError
from headwater_gateway.console.sql.sandbox import COLUMNS_MAX, RESULT_CHARS_MAX, Sandbox


@pytest.fixture
def sandbox() -> Sandbox:
    channel: Any = None
    return Sandbox(channel)


def test_a_huge_result_is_cut(sandbox: Sandbox) -> None:
    wide = ", ".join(f"repeat('x', 4096) AS a{n}" for n in range(20))
    found = sandbox.run(f"SELECT {wide} FROM range(1000)")
    assert found["more"] and 0 < len(found["rows"]) < 1000
    assert len(json.dumps(found)) < 2 * RESULT_CHARS_MAX


def test_a_result_of_too_many_columns_is_refused(sandbox: Sandbox) -> None:
    columns = ", ".join(f"{n} AS c{n}" for n in range(COLUMNS_MAX + 1))
    with pytest.raises(UsageError, match=f"{COLUMNS_MAX + 1} columns"):
        sandbox.run(f"SELECT {columns}")


def test_long_types_are_cut(sandbox: Sandbox) -> None:
    struct = ", ".join(f"f{n} := {n}" for n in range(500))
    found = sandbox.run(f"SELECT struct_pack({struct}) AS s")
    assert len(found["types"][0]) < 1000


def test_a_small_result_is_whole(sandbox: Sandbox) -> None:
    found = sandbox.run("SELECT 1 AS n, NULL::VARCHAR AS s")
    assert found == {
        "columns": ["n", "s"],
        "types": ["INTEGER", "VARCHAR"],
        "rows": [[["n", "1"], None]],
        "more": False,
    }
