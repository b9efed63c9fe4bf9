"""Records as a table for SQL: structs where values are decoded, and nothing lost where not."""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa

from headwater.client.values import ConsumerRecord
from headwater_gateway.console.sql.queries import packed
from headwater_gateway.console.sql.records_table import RecordsTable, records_table
from headwater_tier.typed.decoding import DeclaredFormat
from headwater_tier.typed.memory_schemas import MemorySchemas

AVRO = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}


def table(
    values: list[bytes | None],
    schemas: MemorySchemas | None = None,
    declared: DeclaredFormat | None = None,
) -> RecordsTable:
    records = [ConsumerRecord("t", 0, i, 1000 + i, 0, b"k", v, [], 0) for i, v in enumerate(values)]
    read = pa.ipc.open_stream(packed(records)).read_all()
    return records_table(read, schemas or MemorySchemas(), declared)


def test_json_objects_are_structs_and_misfits_are_told() -> None:
    found = table([b'{"a": 1}', b'{"b": "x"}', None, b"no json"], None, DeclaredFormat("json"))
    assert found.table.column("value").to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        None,
        None,
    ]
    assert found.table.column("raw").to_pylist()[3] == "no json"
    assert found.note.startswith("1 values do not fit json")


def test_text_and_bytes_stay_what_they_are() -> None:
    assert table([b"x", None]).table.column("value").to_pylist() == ["x", None]
    found = table([b"x", b"\xff"]).table
    assert found.column("value").to_pylist() == ["x", None]
    assert found.column("value_bytes").to_pylist() == [b"x", b"\xff"]


def test_frames_are_decoded_by_the_registry_or_it_is_said() -> None:
    schemas = MemorySchemas()
    schema_id = schemas.register("t-value", "AVRO", json.dumps(AVRO))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"n": 7})
    blob = b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()
    assert table([blob], schemas).table.column("value").to_pylist() == [{"n": 7}]
    schemas.fault = "the registry does not answer"
    found = table([blob], schemas)
    assert found.note == "the registry does not answer"


def test_nothing_is_a_table_without_rows() -> None:
    assert table([]).table.num_rows == 0
