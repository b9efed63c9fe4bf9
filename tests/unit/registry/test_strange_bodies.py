"""Bodies and paths that no text or number can hold are refused with the caller's error, not 500."""

from __future__ import annotations

import json

import pytest

from unit.registry.registries import Registry, record

HALF = "\ud800"
INT = json.dumps("int")


@pytest.mark.parametrize(
    "body",
    [
        {"schema": json.dumps(record("a")).replace('"R"', f'"R", "doc": "{HALF}"')},
        {"schema": json.dumps({**record("a"), "doc": HALF})},
        {"schema": json.dumps({"title": HALF}), "schemaType": "JSON"},
        {"schema": INT, "schemaType": HALF},
        {"schema": INT, "references": [{"name": HALF, "subject": HALF, "version": 1}]},
        {"schema": INT, "references": [{"name": "a", "subject": "b", "version": 2**40}]},
        {"schema": INT, "metadata": {"properties": {"a": HALF}}},
    ],
)
def test_half_of_a_surrogate_pair_is_refused_and_not_repeated(body: object) -> None:
    registry = Registry()
    status, _code, message = registry.ask("POST", "/subjects/s/versions", body)
    assert status == 422 and "ud800" not in message
    assert registry.ask("GET", "/subjects") == []


def test_an_alias_that_is_no_text_is_refused() -> None:
    registry = Registry()
    assert registry.code("PUT", "/config/s", {"alias": HALF}) == [422, 422]


def test_numbers_of_thousands_of_digits_are_refused() -> None:
    registry, long = Registry(), "9" * 5000
    registry.register("s", INT)
    assert registry.code("GET", f"/schemas/ids/{long}") == [404, 404]
    assert registry.code("GET", f"/subjects/s/versions/{long}") == [422, 42202]
    artifact = "/apis/registry/v3/groups/default/artifacts/s/versions"
    assert registry.code("GET", f"{artifact}/{long}")[0] == 404


@pytest.mark.parametrize("name", ["__GLOBAL", "__EMPTY", ":.c:__GLOBAL"])
def test_reserved_names_are_no_subjects(name: str) -> None:
    registry = Registry()
    assert registry.register(name, INT)[:2] == [422, 42208]
    assert registry.code("PUT", f"/mode/{name}", {"mode": "IMPORT"}) == [422, 42208]
    assert registry.code("PUT", f"/config/{name}", {"compatibility": "NONE"}) == [422, 42208]
