"""The schemas' pages over a registry of the tests: what they show, and each change by plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from headwater_gateway.console.addresses import ROOT, address
from headwater_gateway.console.views.schema_registry import SchemaRow, difference
from headwater_gateway.registry.clients import OwnRegistry
from unit.console.consoles import Console
from unit.console.full_cluster import HOSTILE
from unit.registry.registries import Registry, record

NUMBER, WIDER = record(("id", "long")), record(("id", "long"), ("delay", ["null", "int"], None))
TEXT = record(("id", "string"))


@pytest.fixture
def registry() -> Registry:
    return Registry()


def console(registry: Registry) -> Console:
    """A console that asks the registry in its own process."""
    return Console(registry=OwnRegistry(registry.client.app))


def post(page: Console, parts: tuple[str, ...], fields: Mapping[str, str], **query: str) -> Any:
    """Plan and confirm."""
    path = address(*parts, **query).removeprefix(ROOT)
    return page.confirm(path, page.plan(path, fields))


def test_without_a_registry_the_page_says_how_to_name_one() -> None:
    page = Console()
    assert "--schema-registry" in page.get("/schemas")
    assert page.browser.get(address("schema", subject="x")).status_code == 400


def test_subjects_are_listed_and_hostile_ones_stay_text(registry: Registry) -> None:
    registry.register("flights-value", NUMBER)
    registry.ask("POST", f"/subjects/{'%3Cb%3E%2F%22'}/versions", {"schema": '"string"'})
    text = console(registry).get("/schemas")
    assert "flights-value" in text and "AVRO" in text
    assert "&lt;b&gt;/&#34;" in text and "<b>/" not in text
    assert "compatibility: BACKWARD" in text


def test_a_subject_shows_its_versions_and_their_difference(registry: Registry) -> None:
    registry.register("flights-value", NUMBER)
    registry.register("flights-value", WIDER)
    text = console(registry).get("/schema", subject="flights-value")
    assert "Version 2" in text and "Against version 1" in text
    assert '<span class="add">+' in text and "delay" in text
    text = console(registry).get("/schema", subject="flights-value", version=1)
    assert "Against" not in text and "delay" not in text


@pytest.mark.parametrize(
    ("query", "status"),
    [({"subject": "x"}, 404), ({"subject": "f", "version": 9}, 404), ({"subject": "f",
      "version": "x"}, 400), ({"subject": HOSTILE}, 404)],
)  # fmt: skip
def test_what_is_not_there_is_told(registry: Registry, query: dict[str, Any], status: int) -> None:
    registry.register("f", NUMBER)
    assert console(registry).browser.get(address("schema", **query)).status_code == status


def test_a_version_is_registered_by_plan(registry: Registry) -> None:
    page = console(registry)
    fields = {"subject": "flights-value", "kind": "AVRO", "schema": json.dumps(NUMBER)}
    assert post(page, ("schema", "register"), fields).status_code == 303
    assert registry.ask("GET", "/subjects/flights-value/versions") == [1]
    assert "value" in page.get("/schema/new", subject="flights-value")


def test_a_plan_says_why_a_schema_does_not_fit(registry: Registry) -> None:
    registry.register("flights-value", NUMBER)
    page = console(registry)
    fields = {"subject": "flights-value", "kind": "AVRO", "schema": json.dumps(TEXT)}
    text = page.browser.post("/console/schema/register", data=fields).text
    assert "Not compatible" in text and "TYPE_MISMATCH" in text and "oldSchema" not in text
    assert post(page, ("schema", "register"), fields).status_code == 400
    assert registry.ask("GET", "/subjects/flights-value/versions") == [1]


def test_a_version_that_came_between_is_409(registry: Registry) -> None:
    registry.register("flights-value", NUMBER)
    page = console(registry)
    fields = {"subject": "flights-value", "kind": "AVRO", "schema": json.dumps(WIDER)}
    plan = page.plan("/schema/register", fields)
    registry.register("flights-value", WIDER)
    assert page.confirm("/schema/register", plan).status_code == 409


def test_levels_and_deletion_by_plan(registry: Registry) -> None:
    registry.register("flights-value", NUMBER)
    page = console(registry)
    assert post(page, ("schema", "level"), {"level": "NONE"}).status_code == 303
    assert registry.ask("GET", "/config") == {"compatibilityLevel": "NONE"}
    reply = post(page, ("schema", "level"), {"level": "FULL"}, subject="flights-value")
    assert reply.status_code == 303
    assert registry.ask("GET", "/config/flights-value") == {"compatibilityLevel": "FULL"}
    assert post(page, ("schema", "delete"), {}, subject="flights-value").status_code == 303
    assert registry.ask("GET", "/subjects") == []


def test_the_difference_of_two_texts() -> None:
    former = SchemaRow("s", 1, 1, "AVRO", '{"a": 1, "b": 2}')
    later = SchemaRow("s", 2, 2, "AVRO", '{"a": 1, "c": 2}')
    assert [(line.kind, line.text) for line in difference(former, later)] == [
        ("same", "  {"),
        ("same", '    "a": 1,'),
        ("cut", '-   "b": 2'),
        ("add", '+   "c": 2'),
        ("same", "  }"),
    ]
    proto = SchemaRow("s", 1, 1, "PROTOBUF", "syntax = 'proto3';")
    assert proto.pretty == proto.text
