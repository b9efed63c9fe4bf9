"""Decoding of record values into Arrow columns: rows per second of one core, best of several runs.

Usage: python bench/bench_decode.py [ROWS]. Six columns: three numbers, two texts, a boolean.
Beside each format's decoder: the kernel switched off, and what the library alone takes to make
Python rows of the same values.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import fastavro
import orjson
import pyarrow as pa
from google.protobuf import message_factory

from headwater_tier.typed.decoding import BlobDecoder, DeclaredFormat
from headwater_tier.typed.formats.avro_rows import AvroSource
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.formats.json_rows import JsonRows
from headwater_tier.typed.formats.protobuf_schema import ProtobufFile
from headwater_tier.typed.formats.rows import RowsDecoder
from headwater_tier.typed.formats.source_columns import SourceRows
from headwater_tier.typed.memory_schemas import MemorySchemas

RUNS = 5
NOTHING = pa.schema([])
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": name, "type": kind}
        for name, kind in (
            ("id", "long"), ("user", "string"), ("price", "double"), ("count", "int"),
            ("ok", "boolean"), ("note", ["null", "string"]),
        )
    ],
}  # fmt: skip
PROTO = """syntax = "proto3"; message Order { int64 id = 1; string user = 2; double price = 3;
int32 count = 4; bool ok = 5; optional string note = 6; }"""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    rows = [_row(random.Random(1).randrange(1_000_000) + n, n) for n in range(count)]
    print(f"{'format':<22}{'B':>6}{'rows/s':>12}{'no kernel':>12}{'library':>12}")
    _json(rows)
    _nested(rows)
    _avro(rows)
    _protobuf(rows)
    _variant(rows)


def _row(seed: int, n: int) -> dict[str, Any]:
    price = (seed * 7919 % 100_000) / 100
    return {"id": n, "user": f"user-{seed}", "price": price, "count": n % 100,
            "ok": n % 3 == 0, "note": f"some text {seed}"}  # fmt: skip


def _json(rows: list[dict[str, Any]]) -> None:
    blobs = [orjson.dumps(row) for row in rows]
    fast = decoder_for(DeclaredFormat("json"), NOTHING, MemorySchemas())
    slow = RowsDecoder(JsonRows(NOTHING, grows=True))
    _show("json, flat", blobs, fast, slow, orjson.loads)


def _nested(rows: list[dict[str, Any]]) -> None:
    blobs = [orjson.dumps({"order": row, "tags": ["a", "b"]}) for row in rows]
    fast = decoder_for(DeclaredFormat("json"), NOTHING, MemorySchemas())
    _show("json, nested", blobs, fast, RowsDecoder(JsonRows(NOTHING, grows=True)), orjson.loads)


def _avro(rows: list[dict[str, Any]]) -> None:
    schema = fastavro.parse_schema(AVRO)
    blobs = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        blobs.append(out.getvalue())
    source = AvroSource(json.dumps(AVRO))
    fast = decoder_for(DeclaredFormat("avro", json.dumps(AVRO)), NOTHING, MemorySchemas())
    slow = RowsDecoder(SourceRows(source, source.columns))

    def library(blob: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(blob), schema, None)

    _show("avro, flat", blobs, fast, slow, library)


def _protobuf(rows: list[dict[str, Any]]) -> None:
    file = ProtobufFile(PROTO)
    new = message_factory.GetMessageClass(file.pool.FindMessageTypeByName("Order"))
    blobs = [new(**row).SerializeToString() for row in rows]
    decoder = decoder_for(DeclaredFormat("protobuf", PROTO), NOTHING, MemorySchemas())
    _show("protobuf", blobs, decoder, None, new.FromString)


def _variant(rows: list[dict[str, Any]]) -> None:
    blobs = [orjson.dumps(row) for row in rows[: len(rows) // 10]]
    decoder = decoder_for(DeclaredFormat("json", variant=True), NOTHING, MemorySchemas())
    _show("json as VARIANT", blobs, decoder, None, orjson.loads)


def _show(
    name: str,
    blobs: list[bytes],
    decoder: BlobDecoder,
    slow: BlobDecoder | None,
    library: Callable[[bytes], Any],
) -> None:
    column = pa.chunked_array([blobs], pa.binary())
    size = sum(map(len, blobs)) / len(blobs)
    decoded = decoder.decode(column)
    if decoded.misfits:
        raise SystemExit(f"{name}: {decoded.misfits[0]}")
    fast = _rate(lambda: decoder.decode(column), len(blobs))
    part = column.slice(0, len(blobs) // 5)
    plain = "" if slow is None else f"{_rate(lambda: slow.decode(part), len(part)):,.0f}"
    alone = _rate(lambda: [library(blob) for blob in blobs], len(blobs))
    print(f"{name:<22}{size:>6.0f}{fast:>12,.0f}{plain:>12}{alone:>12,.0f}", flush=True)


def _rate(work: Callable[[], object], rows: int) -> float:
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return rows / best


if __name__ == "__main__":
    main()
