"""Protobuf messages as columns: types, presence, well-known types, and the messages of a frame."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from headwater_tier.typed.decoding import DeclarationError, DeclaredFormat
from headwater_tier.typed.formats.protobuf_schema import ProtobufFile
from headwater_tier.typed.memory_schemas import MemorySchemas
from headwater_tier.typed.quarantine_reasons import Reason
from unit.tier.formats.format_rows import decode, reasons, rows_of

ALL = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  message Item { string sku = 1; uint32 count = 2; }
  enum State { NEW = 0; PAID = 1; }
  int64 id = 1;
  optional string note = 2;
  State state = 3;
  repeated Item items = 4;
  map<string, double> prices = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Int64Value maybe = 7;
  google.protobuf.Struct free = 8;
  uint64 big = 9;
  bytes raw = 10;
  oneof choice { string a = 11; Item b = 12; }
  Order parent = 13;
  repeated sint32 numbers = 14;
}
message Other { string name = 1; message Inner { bool yes = 1; } }
"""
PROTOBUF = DeclaredFormat("protobuf", ALL)


@pytest.fixture(scope="module")
def new() -> Callable[..., Any]:
    """A maker of messages by name."""
    pool = ProtobufFile(ALL).pool

    def make(name: str, **fields: Any) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(**fields)

    return make


def test_fields_become_wide_columns(new: Callable[..., Any]) -> None:
    order = new("shop.Order", id=-5, state=1, big=(1 << 64) - 1, raw=b"\xff", a="x", maybe={})
    order.items.add(sku="s", count=(1 << 32) - 1)
    order.prices["p"] = float("inf")
    order.at.FromDatetime(datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC))
    order.free["k"] = 1.5
    order.parent.id = 7
    order.numbers.extend([-1, 2])
    decoded = decode(PROTOBUF, [order.SerializeToString(), b"", None])
    full, empty, null = rows_of(decoded)
    assert full == {
        "id": -5,
        "note": None,
        "state": "PAID",
        "items": [{"sku": "s", "count": (1 << 32) - 1}],
        "prices": [("p", float("inf"))],
        "at": datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC),
        "maybe": 0,
        "free": '{"k": 1.5}',
        "big": Decimal((1 << 64) - 1),
        "raw": b"\xff",
        "a": "x",
        "b": None,
        "parent": '{"id": "7"}',
        "numbers": [-1, 2],
    }
    assert (empty["id"], empty["state"], empty["items"], empty["a"]) == (0, "NEW", [], None)
    assert set(null.values()) == {None}
    assert decoded.columns.schema.field("big").type == pa.decimal128(20, 0)


def test_an_enum_number_that_the_schema_does_not_know_is_its_text(new: Any) -> None:
    blob = new("shop.Order", state=9).SerializeToString()
    assert rows_of(decode(PROTOBUF, [blob]))[0]["state"] == "9"


def test_bytes_that_are_no_message_are_malformed() -> None:
    decoded = decode(PROTOBUF, [b"\xff", b"\x12\x01\xff", b"\x08"])
    assert reasons(decoded) == dict.fromkeys(range(3), Reason.MALFORMED)


def test_the_message_is_named_or_the_first() -> None:
    for name in ("Other", "shop.Other"):
        decoded = decode(DeclaredFormat("protobuf", ALL, message=name), [b"\x0a\x01x"])
        assert rows_of(decoded) == [{"name": "x"}]
    with pytest.raises(DeclarationError, match="it has Order, Other"):
        decode(DeclaredFormat("protobuf", ALL, message="None"), [])


def test_a_frame_names_its_message_by_indexes() -> None:
    schemas = MemorySchemas()
    number = schemas.register("t", "PROTOBUF", ALL)
    head = b"\0" + number.to_bytes(4, "big")
    blobs: list[bytes | None] = [
        head + b"\x00" + b"\x08\x05",  # message 0 in short
        head + b"\x02\x02" + b"\x0a\x01x",  # message 1
        head + b"\x04\x02\x00" + b"\x08\x01",  # message 0 in message 1
        head + b"\x02\x0a",  # no message 5
        head + b"\x02",
        head + b"\x7f" * 9,
        head,
    ]
    decoded = decode(DeclaredFormat("confluent"), blobs, schemas=schemas)
    shown = [(row["id"], row["name"], row["yes"]) for row in rows_of(decoded)]
    assert shown[:3] == [(5, None, None), (None, "x", None), (None, None, True)]
    assert reasons(decoded) == dict.fromkeys(range(3, 7), Reason.MALFORMED)


def test_a_wide_schema_whose_table_grows_on_is_read_on() -> None:
    fields = " ".join(f"int32 f{n} = {n};" for n in range(1, 251))
    text = f'syntax = "proto3"; message A {{ B b = 1; }} message B {{ {fields} }}'
    source = ProtobufFile(text).message()
    for _ in range(90):  # one for each growth
        assert source.reader(source.columns)(b"") == {}


def test_references_and_confluents_own_files_are_imported() -> None:
    schemas = MemorySchemas()
    text = """syntax = "proto3"; import "a/b.proto"; import "confluent/meta.proto";
    import "confluent/type/decimal.proto";
    message M { x.B b = 1 [(confluent.field_meta).doc = "d"]; confluent.type.Decimal d = 2; }"""
    referred = 'syntax = "proto3"; package x; message B { int32 n = 1; }'
    number = schemas.register("t", "PROTOBUF", text, (("a/b.proto", referred),))
    blob = b"\0" + number.to_bytes(4, "big") + b"\x00" + b"\x0a\x02\x08\x07"
    decoded = decode(DeclaredFormat("confluent"), [blob], schemas=schemas)
    assert rows_of(decoded)[0]["b"] == {"n": 7}


def test_a_column_keeps_its_type(new: Any) -> None:
    known = pa.schema([("id", pa.float64()), ("big", pa.int64()), ("state", pa.int64())])
    order = new("shop.Order", id=5, big=7)
    assert reasons(decode(PROTOBUF, [order.SerializeToString()], known)) == {0: Reason.DOES_NOT_FIT}
    known = pa.schema([("id", pa.float64()), ("big", pa.int64())])
    order.big = 1 << 63
    blobs = [new("shop.Order", id=5, big=7).SerializeToString(), order.SerializeToString()]
    decoded = decode(PROTOBUF, blobs, known)
    assert reasons(decoded) == {1: Reason.OUT_OF_RANGE}
    assert (rows_of(decoded)[0]["id"], rows_of(decoded)[0]["big"]) == (5.0, 7)


@pytest.mark.parametrize(
    "text, names",
    [
        ("message", "no .proto schema: headwater_schema.proto:1"),
        ('syntax = "proto3"; import "no.proto"; message M {}', "no.proto"),
    ],
)
def test_a_schema_that_does_not_compile_is_refused(text: str, names: str) -> None:
    with pytest.raises(DeclarationError, match=names):
        decode(DeclaredFormat("protobuf", text), [])


def test_a_reference_cannot_leave_its_folder() -> None:
    schemas = MemorySchemas()
    number = schemas.register("t", "PROTOBUF", ALL, (("../evil.proto", ""),))
    blob = b"\0" + number.to_bytes(4, "big") + b"\x00"
    decoded = decode(DeclaredFormat("confluent"), [blob], schemas=schemas)
    assert reasons(decoded) == {0: Reason.DOES_NOT_FIT}
    assert "../evil.proto" in decoded.misfits[0].detail
