"""Whatever bytes a record has: rows, details, exports and filters answer, and nothing raises."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.values import ConsumerRecord
from headwater_gateway.console.messages.decoding import CHOICES, BlobReader
from headwater_gateway.console.messages.record_filter import RecordFilter, Verdict
from headwater_gateway.console.messages.rows import (
    Readers,
    csv_row,
    detail_of,
    ndjson_line,
    row_of,
)
from headwater_tier.typed.memory_schemas import MemorySchemas

SCHEMAS = MemorySchemas()
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "s", "type": ["null", "string", {"type": "array", "items": "bytes"}]},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
IDS = [
    SCHEMAS.register("a-value", "AVRO", json.dumps(AVRO)),
    SCHEMAS.register("p-value", "PROTOBUF", 'syntax = "proto3"; message M { string s = 1; }'),
    SCHEMAS.register("j-value", "JSON", '{"type": "object"}'),
    SCHEMAS.register("x-value", "AVRO", "{"),
    99,
]
texts = st.text(alphabet=st.characters(), max_size=30)
documents = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
payloads = st.one_of(
    st.binary(max_size=60),
    documents.map(lambda document: json.dumps(document).encode()),
    texts.map(lambda text: text.encode("utf-8", "surrogatepass")),
)
framed = st.tuples(st.sampled_from(IDS), payloads).map(
    lambda frame: b"\0" + frame[0].to_bytes(4, "big") + frame[1]
)
blobs = st.none() | payloads | framed
FILTERS = [RecordFilter("value.n > 1 || value.s == 'x'"), RecordFilter("size(value) > 1")]


@given(key=blobs, value=blobs, header=st.tuples(texts, blobs), choice=st.sampled_from(CHOICES))
def test_any_record_is_shown_exported_and_judged(
    key: bytes | None, value: bytes | None, header: tuple[str, bytes | None], choice: str
) -> None:
    reader = BlobReader(SCHEMAS, choice=choice)
    record = ConsumerRecord("t", 0, 1, -5, 1, key, value, [header], -1)
    decoded = reader.decode(key), reader.decode(value)
    for shown in (row_of(record, *decoded), detail_of(record, Readers(reader, reader))):
        text = json.dumps(shown)
        assert text.isascii()
        assert "\u202e" not in json.loads(text)["key"].get("text", "")
    line = ndjson_line(record, *decoded)
    assert line.endswith("\n") and "\n" not in line[:-1] and "\r" not in line
    line.encode("utf-8")
    csv_row(record, *decoded).encode("utf-8")
    for judge in FILTERS:
        assert judge.judge({"value": decoded[1].value}) in Verdict
