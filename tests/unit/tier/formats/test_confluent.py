"""Framed values: schemas by id, columns that come with them, and frames that lead nowhere."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headwater_tier.typed.decoding import DeclarationError, DeclaredFormat
from headwater_tier.typed.formats.factory import decoder_for
from headwater_tier.typed.memory_schemas import MemorySchemas
from headwater_tier.typed.quarantine_reasons import Reason, SchemaUnavailableError
from headwater_tier.typed.without_registry import WithoutRegistry
from unit.tier.formats.format_rows import decode, reasons, rows_of

CONFLUENT = DeclaredFormat("confluent")


def frame(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(**fields: str) -> str:
    rows = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": rows})


def test_each_record_is_read_by_its_own_schema_and_new_fields_add_columns() -> None:
    schemas = MemorySchemas()
    first = schemas.register("t-value", "AVRO", avro(a="int"))
    second = schemas.register("t-value", "AVRO", avro(b="string", a="long"))
    third = schemas.register("t-value", "JSON", '{"properties":{"a":{"type":"integer"},"c":{}}}')
    blobs = [frame(first, b"\x02"), frame(second, b"\x02x\x04"), None, frame(third, b'{"a":3}')]
    decoded = decode(CONFLUENT, [*blobs, frame(first, b"\x08")], schemas=schemas)
    assert [list(row.values()) for row in rows_of(decoded)] == [
        [1, None, None], [2, "x", None], [None, None, None], [3, None, None], [4, None, None]
    ]  # fmt: skip
    assert decoded.schema_ids is not None
    assert decoded.schema_ids.to_pylist() == [first, second, None, third, first]


def test_frames_that_lead_nowhere_are_misfits_and_the_others_go_on() -> None:
    schemas = MemorySchemas()
    good = schemas.register("t", "AVRO", avro(a="int"))
    bad = schemas.register("t", "AVRO", '{"type":"record"}')
    odd = schemas.register("t", "XML", "<a/>")
    blobs = [frame(good, b"\x02"), frame(bad, b""), frame(odd, b""), frame(99, b""), b"\0\0", b"{}",
             b"\x01" + bytes(8)]  # fmt: skip
    decoded = decode(CONFLUENT, list(blobs), schemas=schemas)
    assert reasons(decoded) == {
        1: Reason.DOES_NOT_FIT,
        2: Reason.DOES_NOT_FIT,
        3: Reason.UNKNOWN_SCHEMA,
        4: Reason.MALFORMED,
        5: Reason.MALFORMED,
        6: Reason.MALFORMED,
    }
    assert rows_of(decoded)[0] == {"a": 1}
    assert decoded.schema_ids is not None
    assert decoded.schema_ids.to_pylist() == [good, bad, odd, 99, None, None, None]


def test_a_registry_out_of_reach_quarantines_nothing() -> None:
    schemas = MemorySchemas()
    schemas.fault = "http://registry:8081 does not answer"
    with pytest.raises(SchemaUnavailableError, match="registry:8081"):
        decode(CONFLUENT, [frame(1, b"")], schemas=schemas)


def test_references_are_part_of_a_schema() -> None:
    schemas = MemorySchemas()
    referred = json.dumps({"type": "enum", "name": "ns.E", "symbols": ["A", "B"]})
    text = '{"type":"record","name":"R","fields":[{"name":"e","type":"ns.E"}]}'
    avro_id = schemas.register("t", "AVRO", text, (("ns.E", referred),))
    text = '{"properties":{"o":{"$ref":"other.json#/$defs/p"}}}'
    referred = '{"$defs":{"p":{"properties":{"n":{"type":"number"}}}}}'
    json_id = schemas.register("j", "JSON", text, (("other.json", referred),))
    blobs = [frame(avro_id, b"\x02"), frame(json_id, b'{"o":{"n":1}}')]
    decoded = decode(CONFLUENT, list(blobs), schemas=schemas)
    assert rows_of(decoded) == [{"e": "B", "o": None}, {"e": None, "o": {"n": 1.0}}]


def test_a_subjects_latest_schema_reads_values_without_a_frame() -> None:
    schemas = MemorySchemas()
    schemas.register("t-value", "AVRO", avro(a="int"))
    declared = DeclaredFormat("avro", "registry:t-value")
    assert rows_of(decode(declared, [b"\x02"], schemas=schemas)) == [{"a": 1}]
    with pytest.raises(DeclarationError, match="of type AVRO"):
        decode(DeclaredFormat("json", "registry:t-value"), [], schemas=schemas)


def test_an_inline_schema_for_framed_values_is_refused() -> None:
    with pytest.raises(DeclarationError, match="leave it empty"):
        decode(DeclaredFormat("confluent", avro(a="int")), [])


def test_a_negative_schema_id_is_unknown_and_no_registry_is_asked() -> None:
    decoder = decoder_for(DeclaredFormat("confluent"), pa.schema([]), WithoutRegistry())
    frame = b"\x00\x80\x00\x00\x00x"
    decoded = decoder.decode(pa.chunked_array([[frame]], type=pa.binary()))
    assert [misfit.reason for misfit in decoded.misfits] == [Reason.UNKNOWN_SCHEMA]
