"""Columns whose bytes do not compress are stored as they are."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from headwater.columnar.schema import LOG_TABLE_SCHEMA
from headwater_tier.data_files import codecs


def group(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.Table:
    columns = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys or [None] * len(values), pa.binary()),
    }
    arrays = [columns.get(f.name, pa.nulls(len(values), f.type)) for f in LOG_TABLE_SCHEMA]
    nullable = pa.schema([f.with_nullable(True) for f in LOG_TABLE_SCHEMA])
    return pa.Table.from_arrays(arrays, schema=nullable)


def test_random_values_are_stored_as_they_are_and_their_keys_compressed() -> None:
    random = Random(1)
    found = codecs(group([random.randbytes(100) for _ in range(500)], [b"customer"] * 500))
    assert (found["value"], found["key"], found["offset"]) == ("none", "lz4", "lz4")


def test_json_and_nulls_are_compressed() -> None:
    values = [None, *(b'{"id": %d, "name": "flight"}' % i for i in range(500))]
    assert set(codecs(group(values)).values()) == {"lz4"}
    assert set(codecs(group([None, None])).values()) == {"lz4"}
    assert set(codecs(group([b"", b""])).values()) == {"lz4"}
