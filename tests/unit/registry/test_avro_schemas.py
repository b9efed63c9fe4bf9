"""Avro in the registry: the canonical text, references, reasons; records of the topic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater_gateway.registry.formats.avro_text import canonical_avro
from headwater_gateway.registry.formats.port import NamedText, ParsedSchema, SchemaSyntaxError
from headwater_gateway.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    decode_record,
    encode_record,
)
from headwater_gateway.registry.values import (
    Reference,
    SchemaContent,
    SubjectVersion,
)
from unit.registry.registries import FORMATS


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ('{"type": "string"}', '"string"'),
        ('{"type": {"type": "int"}}', '"int"'),
        ('{"type":"int","logicalType":"date"}', '{"type":"int","logicalType":"date"}'),
        ('["null", {"type":"array","items":{"type":"long"}}]',
         '["null",{"type":"array","items":"long"}]'),
        ('{"name":"a.b.R","type":"record","fields":[]}',
         '{"type":"record","name":"R","namespace":"a.b","fields":[]}'),
        (('{"type":"record","name":"R","namespace":"a","fields":[{"default":1,"name":"x","type":'
         '{"type":"fixed","name":"a.F","size":2},"order":"ascending"},{"name":"y","type":"a.F"}]}'),
         ('{"type":"record","name":"R","namespace":"a","fields":[{"name":"x","type":'
         '{"type":"fixed","name":"F","size":2},"default":1},{"name":"y","type":"F"}]}')),
        ('{"type":"enum","symbols":["A"],"name":"E","doc":"ü","z":1,"default":"A"}',
         '{"type":"enum","name":"E","doc":"ü","symbols":["A"],"default":"A","z":1}'),
    ],
)  # fmt: skip
def test_a_text_is_written_as_avros_java_library_writes_it(given: str, written: str) -> None:
    assert canonical_avro(json.loads(given)) == written
    assert canonical_avro(json.loads(written)) == written


def test_a_primitive_may_lack_its_quotes() -> None:
    assert FORMATS.parse("AVRO", " string ").text == '"string"'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ('{"type":"record","name":"R"}', "fields"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"Unknown"}]}', "Unknown"),
        ('{"type":"enum","name":"E","symbols":["A"],"name":"F"}', "'name' twice"),
        ("[1]", "Avro schema"),
    ],
)
def test_what_is_no_schema_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(SchemaSyntaxError, match=why):
        FORMATS.parse("AVRO", text)


def test_names_of_references_are_known_also_through_others() -> None:
    inner = '{"type":"enum","name":"n.Color","symbols":["RED"]}'
    middle = '{"type":"record","name":"n.Car","fields":[{"name":"c","type":"n.Color"}]}'
    outer = '{"type":"record","name":"n.Fleet","fields":[{"name":"car","type":"Car"}]}'
    texts = [NamedText("n.Color", inner), NamedText("n.Car", middle)]
    assert '"type":"Car"' in FORMATS.parse("AVRO", outer, texts).text


def test_each_reason_names_the_place_and_which_schema_lacks_what() -> None:
    def of(kind: Any) -> Any:
        fields = [{"name": "a", "type": kind}]
        return FORMATS.parse("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields}))

    (problem,) = of("int").problems_reading(of("string"))
    assert problem.kind == "TYPE_MISMATCH"
    shown = problem.message("new", "old")
    assert shown.startswith("{errorType:'TYPE_MISMATCH', description:\"The ")
    assert "a field in the new schema does not match with the old schema" in problem.message(
        "new", "old"
    )
    (problem,) = of(["null"]).problems_reading(of(["null", "int"]))
    assert problem.kind == "MISSING_UNION_BRANCH"
    assert of(["null", "int"]).problems_reading(of("int")) == []


def test_a_renamed_type_reads_what_its_alias_wrote() -> None:
    def of(name: str, *aliases: str) -> ParsedSchema:
        document = {"type": "record", "name": name, "namespace": "shop", "fields": []}
        return FORMATS.parse("AVRO", json.dumps({**document, "aliases": aliases}))

    assert of("New", "Old").problems_reading(of("Old")) == []
    assert of("New", "shop.Old").problems_reading(of("Old")) == []
    (problem,) = of("New", "other.Old").problems_reading(of("Old"))
    assert problem.kind == "NAME_MISMATCH"


CONTENT = SchemaContent(
    "PROTOBUF",
    'syntax = "proto3";',
    (Reference("a.proto", "a", 2),),
    {"properties": {"p": "ü"}},
)
VERSION = SubjectVersion("s", 3, 7, CONTENT, is_deleted=True)


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (SchemaRecord("s", 3, VERSION),
         '{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}'),
        (SchemaRecord("s", 3, None),
         '{"keytype":"SCHEMA","subject":"s","version":3,"magic":1}'),
        (ConfigRecord("", {"compatibilityLevel": "FULL"}),
         '{"keytype":"CONFIG","subject":null,"magic":0}'),
        (ModeRecord(":.c:", None), '{"keytype":"MODE","subject":":.c:","magic":0}'),
        (ModeRecord("s", "IMPORT"), '{"keytype":"MODE","subject":"s","magic":0}'),
        (DeleteSubjectRecord("s", 2), '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
        (ClearSubjectRecord(""), '{"keytype":"CLEAR_SUBJECT","subject":null,"magic":0}'),
        (ContextRecord(".c"),
         '{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}'),
        (NoopRecord({"": 9}), '{"keytype":"NOOP","magic":0}'),
    ],
)  # fmt: skip
def test_a_record_survives_the_topic_under_confluents_key(record: Any, key: str) -> None:
    encoded, value = encode_record(record)
    assert encoded.decode() == key
    assert decode_record(encoded, value) == record


def test_records_of_confluents_registry_are_read() -> None:
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    value = b'{"subject":"s","version":1,"id":1,"md5":"x","schema":"\\"int\\"","deleted":false}'
    assert decode_record(key, value) == SchemaRecord(
        "s", 1, SubjectVersion("s", 1, 1, SchemaContent("AVRO", '"int"'))
    )
    assert decode_record(b'{"keytype":"NOOP","magic":0}', None) == NoopRecord({})
    assert decode_record(b'{"keytype":"ASSOC","magic":0}', b"{}") is None
    assert decode_record(None, b"x") is None
    for odd in (b"x", b"[]", b'{"keytype":"SCHEMA"}'):
        with pytest.raises(ValueError):
            decode_record(odd, b"{}")
