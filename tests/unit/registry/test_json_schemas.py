"""JSON Schema in the registry: what reads what, references, what is not decided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater_gateway.registry.formats import json_schemas
from headwater_gateway.registry.formats.port import NamedText, SchemaSyntaxError
from unit.registry.registries import FORMATS


def parse(schema: Any, **references: Any) -> Any:
    texts = [NamedText(n.replace("_", "."), json.dumps(s)) for n, s in references.items()]
    return FORMATS.parse("JSON", json.dumps(schema), texts)


def kinds(reader: Any, writer: Any) -> list[str]:
    """Why the one does not read the other."""
    return [p.kind for p in parse(reader).problems_reading(parse(writer))]


def thing(closed: bool = False, required: tuple[str, ...] = (), **properties: Any) -> Any:
    rows = {n: {"type": t} if isinstance(t, str) else t for n, t in properties.items()}
    more: dict[str, Any] = {"additionalProperties": False} if closed else {}
    if required:
        more["required"] = list(required)
    return {"type": "object", "properties": rows, **more}


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (thing(a="number"), thing(a="integer"), []),
        (thing(a="integer"), thing(a="number"), ["TYPE_NARROWED"]),
        (thing(closed=True, a="string", b="string"), thing(closed=True, a="string"), []),
        (
            thing(a="string", b="string"),
            thing(a="string"),
            ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"],
        ),
        (thing(a="string", b={}), thing(a="string"), []),
        (
            thing(closed=True, a="string"),
            thing(closed=True, a="string", b="string"),
            ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
        ),
        (thing(required=("a",), a="string"), thing(a="string"), ["REQUIRED_ATTRIBUTE_ADDED"]),
        (thing(a="string"), thing(required=("a",), a="string"), []),
        ({"enum": ["x", "y"]}, {"enum": ["x"]}, []),
        ({"enum": ["x"]}, {"enum": ["x", "y"]}, ["TYPE_NARROWED"]),
        ({"const": 1}, {"const": 2}, ["TYPE_NARROWED"]),
        (
            {"type": "number", "exclusiveMinimum": 2},
            {"type": "number", "exclusiveMinimum": 1},
            ["TYPE_NARROWED"],
        ),
        ({"type": "number", "exclusiveMinimum": 1}, {"type": "number", "minimum": 2}, []),
        (
            {"type": "array", "items": {"type": "integer"}},
            {"type": "array", "items": {"type": "string"}},
            ["TYPE_NARROWED"],
        ),
        (True, {"type": "string"}, []),
        ({"type": ["string", "null"]}, {"type": "string"}, []),
    ],
)  # fmt: skip
def test_a_schema_reads_what_is_within_it(reader: Any, writer: Any, why: list[str]) -> None:
    assert kinds(reader, writer) == why


def test_a_keyword_that_the_check_does_not_know_is_undecided_in_the_reader() -> None:
    limit = {"propertyNames": {"maxLength": 3}}
    assert kinds({**thing(), **limit}, thing()) == ["UNDECIDED"]
    assert kinds(thing(), {**thing(), **limit}) == []  # the writer's only makes it smaller
    assert kinds({"allOf": [thing(a="string"), thing(b="string")]}, thing(a="string")) == [
        "UNDECIDED"
    ]


def test_a_keyword_that_is_equal_in_both_does_not_matter() -> None:
    limit = {"propertyNames": {"maxLength": 3}}
    assert kinds({**thing(a="number"), **limit}, {**thing(a="integer"), **limit}) == []
    inner, wider = {**thing(a="integer"), **limit}, {**thing(a="number"), **limit}
    assert kinds(thing(x=wider), thing(x=inner)) == []
    assert kinds(thing(x=inner), thing(x=wider)) == ["TYPE_NARROWED"]
    condition = {"if": {"required": ["a"]}, "then": {"required": ["b"]}}
    assert kinds({**thing(), **condition, "else": False}, {**thing(), **condition}) == ["UNDECIDED"]


def test_a_recursive_schema_is_undecided_but_reads_itself() -> None:
    tree = {**thing(child={"$ref": "#"}), "title": "one"}
    assert kinds(tree, tree) == []
    assert kinds({**tree, "title": "other"}, tree) == ["UNDECIDED"]


def test_patterns_and_choices_are_checked_apart() -> None:
    text, number = {"type": "string"}, {"type": "number"}
    assert kinds({"anyOf": [text, number]}, text) == []
    assert kinds({"oneOf": [text, number]}, {"type": ["string", "null"]}) == ["TYPE_NARROWED"]
    assert kinds({**text, "pattern": "^a*$"}, {**text, "pattern": "^aa*$"}) == []


def test_a_check_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schemas, "CHECK_S", 0)
    assert kinds({"anyOf": [{"type": "string"}]}, {"type": "string"}) == ["UNDECIDED"]


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(600):
        deep = {"not": deep}
    with pytest.raises(SchemaSyntaxError, match="too deeply"):
        parse(deep)


def test_references_are_found_by_name_and_never_fetched() -> None:
    address = {**thing(street="string"), "definitions": {"zip": {"type": "integer"}}}
    person = thing(home={"$ref": "address.json"}, zip={"$ref": "address.json#/definitions/zip"})
    one = parse(person, address_json=address)
    wide = {**address, "definitions": {"zip": {"type": "number"}}}
    other = parse(person, address_json=wide)
    assert other.problems_reading(one) == []
    assert [p.kind for p in one.problems_reading(other)] == ["TYPE_NARROWED"]
    with pytest.raises(SchemaSyntaxError, match=r"http://127.0.0.1:9/x.json"):
        parse({"$ref": "http://127.0.0.1:9/x.json"})


ELSEWHERE = {"$ref": "http://127.0.0.1:9/x.json"}


def test_a_property_may_have_any_name_and_its_references_are_checked() -> None:
    for name in ("enum", "default", "const"):
        with pytest.raises(SchemaSyntaxError, match="none of the schema's references"):
            parse({"properties": {name: ELSEWHERE}})


def test_a_ref_in_data_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("it would be fetched")

    monkeypatch.setattr("socket.socket.connect", no_network)
    with_default = thing(a={"type": "string", "default": ELSEWHERE})
    assert kinds(with_default, thing(a="string")) == []
    assert kinds({"enum": [ELSEWHERE, 1]}, {"enum": [ELSEWHERE]}) == ["UNDECIDED"]


def test_an_id_makes_references_relative() -> None:
    person = {"$id": "https://a.example/person.json", **thing(home={"$ref": "address.json"})}
    text = NamedText("https://a.example/address.json", json.dumps(thing(street="string")))
    assert FORMATS.parse("JSON", json.dumps(person), [text]).text


@pytest.mark.parametrize("text", ["{", "3", '{"type": "strange"}', '{"properties": []}'])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaSyntaxError):
        FORMATS.parse("JSON", text)


def test_the_order_of_keys_does_not_matter_for_a_lookup() -> None:
    one, other = parse({"type": "string", "title": "t"}), parse({"title": "t", "type": "string"})
    assert one.text != other.text
    assert one.is_same(other)
    assert one.normalized().text == other.normalized().text
