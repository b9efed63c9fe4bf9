"""The requests of the registry's differential suite: a registry's life, and pairs of schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """A request. `name` is how the report calls it."""

    name: str
    method: str
    path: str
    body: Any = None


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """An Avro record; a field is a name (an int), or (name, type) or (name, type, default)."""
    rows = []
    for field in fields:
        parts = (field, "int") if isinstance(field, str) else field
        rows.append(dict(zip(("name", "type", "default"), parts, strict=False)))
    return {"type": "record", "name": name, "fields": rows, **more}


def body(schema: Any, kind: str = "AVRO", **more: Any) -> dict[str, Any]:
    """The body of a registration."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"schema": text, "schemaType": kind, **more}


ONE, TWO, BAD = record("a"), record("a", ("b", "int", 0)), record("a", "c")
S = "/subjects/life"
LIFE = (
    Step("no subjects", "GET", "/subjects"),
    Step("types", "GET", "/schemas/types"),
    Step("default level", "GET", "/config"),
    Step("set the default level", "PUT", "/config", {"compatibility": "BACKWARD"}),
    Step("default mode", "GET", "/mode"),
    Step("register", "POST", f"{S}/versions", body(ONE)),
    Step("register again", "POST", f"{S}/versions", body(ONE)),
    Step("register a second", "POST", f"{S}/versions", body(TWO)),
    Step("register an incompatible one", "POST", f"{S}/versions", body(BAD)),
    Step("register no schema", "POST", f"{S}/versions", body("{")),
    Step("register an empty one", "POST", f"{S}/versions", body("")),
    Step("register an unknown type", "POST", f"{S}/versions", body(ONE, "XML")),
    Step("register the first elsewhere", "POST", "/subjects/else/versions", body(ONE)),
    Step("versions", "GET", f"{S}/versions"),
    Step("version 1", "GET", f"{S}/versions/1"),
    Step("latest", "GET", f"{S}/versions/latest"),
    Step("schema of a version", "GET", f"{S}/versions/1/schema"),
    Step("version 9", "GET", f"{S}/versions/9"),
    Step("version 0", "GET", f"{S}/versions/0"),
    Step("version x", "GET", f"{S}/versions/x"),
    Step("unknown subject", "GET", "/subjects/none/versions"),
    Step("unknown subject's version", "GET", "/subjects/none/versions/1"),
    Step("by id", "GET", "/schemas/ids/1"),
    Step("unknown id", "GET", "/schemas/ids/99"),
    Step("subjects of an id", "GET", "/schemas/ids/1/subjects"),
    Step("versions of an id", "GET", "/schemas/ids/1/versions"),
    Step("look up", "POST", S, body(TWO)),
    Step("look up an unknown one", "POST", S, body(BAD)),
    Step("look up in an unknown subject", "POST", "/subjects/none", body(ONE)),
    Step("check with latest", "POST", f"/compatibility{S}/versions/latest", body(BAD)),
    Step("check with version 1", "POST", f"/compatibility{S}/versions/1", body(TWO)),
    Step("check with version 9", "POST", f"/compatibility{S}/versions/9", body(TWO)),
    Step("check with all", "POST", f"/compatibility{S}/versions", body(TWO)),
    Step("subject's level, unset", "GET", "/config/life"),
    Step("subject's level in scope", "GET", "/config/life?defaultToGlobal=true"),
    Step("set a level", "PUT", "/config/life", {"compatibility": "NONE"}),
    Step("set no level", "PUT", "/config/life", {"compatibility": "ODD"}),
    Step("subject's level", "GET", "/config/life"),
    Step("register by the new level", "POST", f"{S}/versions", body(BAD)),
    Step("delete the level", "DELETE", "/config/life"),
    Step("delete the level again", "DELETE", "/config/life"),
    Step("set the level of all", "PUT", "/config", {"compatibility": "FULL"}),
    Step("level of all", "GET", "/config"),
    Step("reset the level of all", "PUT", "/config", {"compatibility": "BACKWARD"}),
    Step("delete a version for good at once", "DELETE", f"{S}/versions/3?permanent=true"),
    Step("delete a version", "DELETE", f"{S}/versions/3"),
    Step("delete it again", "DELETE", f"{S}/versions/3"),
    Step("versions without it", "GET", f"{S}/versions"),
    Step("versions with it", "GET", f"{S}/versions?deleted=true"),
    Step("delete it for good", "DELETE", f"{S}/versions/3?permanent=true"),
    Step("delete an unknown version", "DELETE", f"{S}/versions/9"),
    Step("delete the subject for good at once", "DELETE", f"{S}?permanent=true"),
    Step("delete the subject", "DELETE", S),
    Step("delete it once more", "DELETE", S),
    Step("subjects without it", "GET", "/subjects"),
    Step("subjects with it", "GET", "/subjects?deleted=true"),
    Step("register after the deletion", "POST", f"{S}/versions", body(TWO)),
    Step("delete it a last time", "DELETE", S),
    Step("delete the subject for good", "DELETE", f"{S}?permanent=true"),
    Step("delete an unknown subject", "DELETE", "/subjects/none"),
    Step("register what is referred to", "POST", "/subjects/address/versions",
         body(record("street", name="Address"))),
    Step("register what refers", "POST", "/subjects/person/versions",
         body(record(("home", "Address"), name="Person"),
              references=[{"name": "Address", "subject": "address", "version": 1}])),
    Step("referred by", "GET", "/subjects/address/versions/1/referencedby"),
    Step("delete what is referred to", "DELETE", "/subjects/address/versions/1"),
    Step("refer to what is not there", "POST", "/subjects/person/versions",
         body(record(("home", "Gone"), name="Person"),
              references=[{"name": "Gone", "subject": "gone", "version": 1}])),
    Step("contexts", "GET", "/contexts"),
)  # fmt: skip


def proto(*lines: str) -> str:
    """A file of one message M, unless a line is a message."""
    rest = [line for line in lines if line.startswith(("message", "enum"))]
    fields = " ".join(f"{line};" for line in lines if line not in rest)
    return 'syntax = "proto3"; ' + " ".join(rest) + f" message M {{ {fields} }}"


def thing(closed: bool = False, required: tuple[str, ...] = (), **kinds: str) -> dict[str, Any]:
    """A JSON Schema of an object."""
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in kinds.items()},
    }
    if closed:
        found["additionalProperties"] = False
    if required:
        found["required"] = list(required)
    return found


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
PAIRS: dict[str, tuple[tuple[str, Any, Any], ...]] = {
    "AVRO": (
        ("field with a default added", ONE, TWO),
        ("field without a default added", ONE, BAD),
        ("field removed", BAD, ONE),
        ("int becomes long", ONE, record(("a", "long"))),
        ("long becomes int", record(("a", "long")), ONE),
        ("int becomes string", ONE, record(("a", "string"))),
        ("string becomes bytes", record(("a", "string")), record(("a", "bytes"))),
        ("union gains a branch", record(("a", ["null", "int"])),
         record(("a", ["null", "int", "string"]))),
        ("union loses a branch", record(("a", ["null", "int", "string"])),
         record(("a", ["null", "int"]))),
        ("int becomes a union with it", ONE, record(("a", ["null", "int"]))),
        ("enum symbol removed", record(("a", ENUM)), record(("a", {**ENUM, "symbols": ["A"]}))),
        ("enum symbol added", record(("a", ENUM)),
         record(("a", {**ENUM, "symbols": ["A", "B", "C"]}))),
        ("record renamed", ONE, record("a", name="Q")),
        ("field renamed with an alias", ONE,
         {**ONE, "fields": [{"name": "z", "type": "int", "aliases": ["a"]}]}),
        ("size of a fixed changed", {"type": "fixed", "name": "F", "size": 4},
         {"type": "fixed", "name": "F", "size": 8}),
        ("items of an array changed", {"type": "array", "items": "int"},
         {"type": "array", "items": "string"}),
    ),
    "PROTOBUF": (
        ("field added", proto("int32 a = 1"), proto("int32 a = 1", "string b = 2")),
        ("field removed", proto("int32 a = 1", "string b = 2"), proto("int32 a = 1")),
        ("field renamed", proto("int32 a = 1"), proto("int32 z = 1")),
        ("int32 becomes int64", proto("int32 a = 1"), proto("int64 a = 1")),
        ("int32 becomes sint32", proto("int32 a = 1"), proto("sint32 a = 1")),
        ("int32 becomes string", proto("int32 a = 1"), proto("string a = 1")),
        ("string becomes bytes", proto("string a = 1"), proto("bytes a = 1")),
        ("message added", proto("int32 a = 1"), proto("int32 a = 1", "message N {}")),
        ("message removed", proto("int32 a = 1", "message N {}"), proto("int32 a = 1")),
        ("fields moved into a oneof", proto("int32 a = 1", "int32 b = 2"),
         'syntax = "proto3"; message M { oneof o { int32 a = 1; int32 b = 2; } }'),
        ("number becomes repeated", proto("int32 a = 1"), proto("repeated int32 a = 1")),
        ("enum value added", proto("enum E { A = 0; }", "E a = 1"),
         proto("enum E { A = 0; B = 1; }", "E a = 1")),
    ),
    "JSON": (
        ("optional property added, open", thing(a="string"), thing(a="string", b="string")),
        ("optional property added, closed", thing(True, a="string"),
         thing(True, a="string", b="string")),
        ("property removed, closed", thing(True, a="string", b="string"), thing(True, a="string")),
        ("property removed, open", thing(a="string", b="string"), thing(a="string")),
        ("property becomes required", thing(a="string"), thing(required=("a",), a="string")),
        ("property is no longer required", thing(required=("a",), a="string"), thing(a="string")),
        ("integer becomes number", thing(a="integer"), thing(a="number")),
        ("number becomes integer", thing(a="number"), thing(a="integer")),
        ("enum value removed", {"enum": ["x", "y"]}, {"enum": ["x"]}),
        ("enum value added", {"enum": ["x"]}, {"enum": ["x", "y"]}),
        ("maxLength smaller", {"type": "string", "maxLength": 9},
         {"type": "string", "maxLength": 5}),
        ("open becomes closed", thing(a="string"), thing(True, a="string")),
    ),
}  # fmt: skip
"""Language -> (what changed, old schema, new schema)."""


def pair_steps() -> Iterator[Step]:
    """Each pair at BACKWARD and at FORWARD, in a subject of its own."""
    for kind, pairs in PAIRS.items():
        for number, (what, old, new) in enumerate(pairs):
            for level in ("BACKWARD", "FORWARD"):
                subject = f"{kind.lower()}-{number}-{level.lower()}"
                path = f"/subjects/{subject}/versions"
                name = f"{kind} {level}: {what}"
                yield Step("", "POST", path, body(old, kind))
                yield Step("", "PUT", f"/config/{subject}", {"compatibility": level})
                yield Step(name, "POST", f"/compatibility{path}/latest", body(new, kind))
