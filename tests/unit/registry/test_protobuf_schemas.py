"""Protobuf in the registry: what reads what, descriptors in and out, references."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from headwater_gateway.registry.formats.port import NamedText, SchemaSyntaxError
from unit.registry.registries import FORMATS, Registry

HEAD = 'syntax = "proto3";\npackage p;\n'


def parse(body: str, head: str = HEAD, **references: str) -> Any:
    texts = [NamedText(f"{n}.proto", t) for n, t in references.items()]
    return FORMATS.parse("PROTOBUF", head + body, texts)


def kinds(reader: str, writer: str, head: str = HEAD) -> list[str]:
    """Why the one does not read the other."""
    return [p.kind for p in parse(reader, head).problems_reading(parse(writer, head))]


def message(*fields: str) -> str:
    return "message M { " + " ".join(f"{f};" for f in fields) + " }"


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (message("int32 a = 1"), message("int32 a = 1", "string b = 2"), []),
        (message("int32 a = 1", "string b = 2"), message("int32 a = 1"), []),
        (message("int32 other = 1"), message("int32 a = 1"), []),
        (message("int64 a = 1"), message("int32 a = 1"), []),
        (message("bytes a = 1"), message("string a = 1"), []),
        (message("sint32 a = 1"), message("int32 a = 1"), ["FIELD_SCALAR_KIND_CHANGED"]),
        (message("string a = 1"), message("int32 a = 1"), ["FIELD_SCALAR_KIND_CHANGED"]),
        (message("M a = 1"), message("int32 a = 1"), ["FIELD_KIND_CHANGED"]),
        (message("repeated int32 a = 1"), message("int32 a = 1"), ["FIELD_NUMERIC_LABEL_CHANGED"]),
        (message("repeated string a = 1"), message("string a = 1"), []),
        (message("optional int32 a = 1"), message("int32 a = 1"), []),
        (
            message("map<string, int32> a = 1"),
            message("map<string, string> a = 1"),
            ["FIELD_SCALAR_KIND_CHANGED"],
        ),
        (message(), message() + " message N { }", ["MESSAGE_REMOVED"]),
        (message() + " message N { }", message(), []),
        ("message M { message N {} }", "message M { message N {} message O {} }",
         ["MESSAGE_REMOVED"]),
        (
            "message N {} message O {} message M { O a = 1; }",
            "message N {} message O {} message M { N a = 1; }",
            ["FIELD_NAMED_TYPE_CHANGED"],
        ),
        ("enum E { A = 0; } message M { E a = 1; }", message("int32 a = 1"), []),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            message("int32 a = 1", "int32 b = 2"),
            ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        ),
        ("message M { oneof o { int32 a = 1; } }", message("int32 a = 1"), []),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "message M { oneof o { int32 a = 1; } int32 b = 2; }",
            ["FIELD_MOVED_TO_EXISTING_ONEOF"],
        ),
        (
            "message M { oneof o { int32 a = 1; } }",
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            ["ONEOF_FIELD_REMOVED"],
        ),
        (message(), "message M { oneof o { int32 a = 1; } }", []),
        (
            message("int32 a = 1", "int32 b = 2"),
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            [],
        ),
    ],
)  # fmt: skip
def test_a_schema_reads_what_the_rules_say(reader: str, writer: str, why: list[str]) -> None:
    assert kinds(reader, writer) == why


def test_required_fields_and_the_package_may_not_change() -> None:
    head = 'syntax = "proto2";\n'
    one, other = "message M { required int32 a = 1; }", "message M { }"
    assert kinds(one, other, head) == ["REQUIRED_FIELD_ADDED"]
    assert kinds(other, one, head) == ["REQUIRED_FIELD_REMOVED"]
    moved = parse("message M { }", 'syntax = "proto3"; package q;')
    assert [p.kind for p in moved.problems_reading(parse("message M { }"))] == ["PACKAGE_CHANGED"]


def test_a_message_of_a_reference_is_compared_too() -> None:
    body = 'import "n.proto";\nmessage M { N n = 1; }'
    one = parse(body, n=HEAD + "message N { int32 a = 1; }")
    other = parse(body, n=HEAD + "message N { string a = 1; }")
    assert [p.kind for p in other.problems_reading(one)] == [
        "FIELD_SCALAR_KIND_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED",
    ]


def test_what_does_not_compile_is_refused_with_protocs_words() -> None:
    with pytest.raises(SchemaSyntaxError, match='"int33" is not defined'):
        parse(message("int33 a = 1"))
    with pytest.raises(SchemaSyntaxError, match="missing"):
        parse('import "missing.proto";')


EVERYTHING = """syntax = "proto3";
package all.of_it;
import "google/protobuf/timestamp.proto";
option java_package = "com.example";
option java_multiple_files = true;
message M {
  option deprecated = true;
  reserved 20, 30 to 32, 1000 to max;
  reserved "old";
  repeated int32 packed = 1 [packed = false];
  optional string maybe = 2 [deprecated = true];
  map<string, N> by_name = 3;
  oneof choice { bool yes = 4; .google.protobuf.Timestamp at = 5; }
  N.Kind kind = 6 [json_name = "sort"];
  message N { enum Kind { option allow_alias = true; NONE = 0; NIL = 0; LESS = -1; } Kind k = 1; }
}
service S { rpc Ask (M) returns (stream M) { option deprecated = true; } }
"""


def test_a_descriptor_in_base64_becomes_text_that_means_the_same() -> None:
    schema = FORMATS.parse("PROTOBUF", EVERYTHING)
    encoded = schema.formatted("serialized")
    again = FORMATS.parse("PROTOBUF", encoded)
    assert "map<string, .all.of_it.M.N> by_name = 3;" in again.text
    assert again.is_same(schema)
    assert again.formatted("serialized") == encoded
    assert schema.formatted("") == EVERYTHING


def test_proto2_survives_as_text() -> None:
    text = (
        'syntax = "proto2";\nmessage M {\n  required int32 a = 1 [default = 3];\n'
        '  optional string b = 2 [default = "x\\"y"];\n  extensions 100 to 199;\n}\n'
        "extend M {\n  optional int32 more = 100;\n}\n"
    )
    schema = FORMATS.parse("PROTOBUF", text)
    assert FORMATS.parse("PROTOBUF", schema.formatted("serialized")).is_same(schema)


def test_normalized_sorts_fields_and_drops_comments() -> None:
    one = parse("// c\nmessage M { int32 b = 2; int32 a = 1; }").normalized()
    assert one.text == parse("message M { int32 a = 1; int32 b = 2; }").normalized().text
    assert "//" not in one.text


def test_the_registry_knows_text_and_descriptor_of_one_schema() -> None:
    registry = Registry()
    text = HEAD + message("int32 a = 1")
    assert registry.register("s", text, schemaType="PROTOBUF") == 1
    shown = registry.ask("GET", "/schemas/ids/1?format=serialized")["schema"]
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(shown))
    assert file.message_type[0].field[0].name == "a"
    assert registry.register("s", shown, schemaType="PROTOBUF") == 1
    assert registry.ask("GET", "/subjects/s/versions") == [1]
    worse = HEAD + message("string a = 1")
    assert registry.register("s", worse, schemaType="PROTOBUF")[:2] == [409, 409]


def test_a_well_known_type_needs_no_reference() -> None:
    blob = timestamp_pb2.DESCRIPTOR.serialized_pb
    assert "message Timestamp" in FORMATS.parse("PROTOBUF", base64.b64encode(blob).decode()).text
