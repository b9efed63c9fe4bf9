"""Compatibility levels, modes, references, contexts: which registrations are taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unit.registry.registries import Registry, record

BASE = record("a", ("b", "int", 0))
WITHOUT_B = record("a")
MORE = record("a", ("b", "int", 0), "c")
"""Reads nothing that BASE wrote; BASE reads it."""
LESS = record(("b", "int", 0))
"""Reads BASE; BASE does not read it, as it lacks a."""


@pytest.mark.parametrize(
    ("level", "taken"),
    [
        ("NONE", (MORE, LESS)),
        ("BACKWARD", (LESS,)),
        ("FORWARD", (MORE,)),
        ("FULL", ()),
    ],
)
@pytest.mark.parametrize("transitive", ["", "_TRANSITIVE"])
def test_a_level_takes_what_fits(level: str, taken: tuple[Any, ...], transitive: str) -> None:
    for schema in (MORE, LESS):
        registry = Registry()
        registry.ask("PUT", "/config", {"compatibility": level + transitive * (level != "NONE")})
        registry.register("s", BASE)
        reply = registry.register("s", schema)
        assert reply == 2 if schema in taken else reply[:2] == [409, 409]


def test_only_a_transitive_level_looks_at_older_versions() -> None:
    registry = Registry()
    first, second = record("a"), record("a", ("x", "int", 0))
    third = record("a", "x")  # reads the second, not the first
    for subject, level in (("last", "BACKWARD"), ("all", "BACKWARD_TRANSITIVE")):
        registry.ask("PUT", f"/config/{subject}", {"compatibility": level})
        registry.register(subject, first)
        registry.register(subject, second)
    assert registry.register("last", third) == 3
    status, code, message = registry.register("all", third)
    assert (status, code) == (409, 409)
    assert "{oldSchemaVersion: 1}" in message
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message


def test_a_check_says_yes_or_no_and_why() -> None:
    registry = Registry()
    registry.register("s", BASE)
    path, body = "/compatibility/subjects/s/versions", {"schema": json.dumps(MORE)}
    assert registry.ask("POST", f"{path}/latest", body) == {"is_compatible": False}
    told = registry.ask("POST", f"{path}?verbose=true", body)
    assert told["is_compatible"] is False
    assert "The field 'c' at path '/fields/2' in the new schema" in told["messages"][0]
    assert told["messages"][-1] == "{validateFields: 'false', compatibility: 'BACKWARD'}"
    fits = registry.ask("POST", f"{path}/1?verbose=true", {"schema": json.dumps(LESS)})
    assert fits == {"is_compatible": True, "messages": []}
    assert registry.code("POST", f"{path}/7", body) == [404, 40402]
    assert registry.ask("POST", "/compatibility/subjects/new/versions/latest", body) == {
        "is_compatible": True
    }


def test_another_schema_language_in_a_subject_is_incompatible() -> None:
    registry = Registry()
    registry.register("s", BASE)
    assert registry.register("s", {"type": "object"}, schemaType="JSON")[:2] == [409, 409]


def test_configs_hold_for_a_subject_then_its_context_then_all() -> None:
    registry = Registry()
    assert registry.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert registry.code("GET", "/config/s") == [404, 40408]
    assert registry.ask("PUT", "/config/:.c:", {"compatibility": "none"}) == {
        "compatibility": "NONE"
    }
    in_scope = "/config/:.c:s?defaultToGlobal=true"
    assert registry.ask("GET", in_scope) == {"compatibilityLevel": "NONE"}
    registry.ask("PUT", "/config/:.c:s", {"compatibility": "FULL"})
    assert registry.ask("GET", in_scope) == {"compatibilityLevel": "FULL"}
    assert registry.ask("DELETE", "/config/:.c:s") == {"compatibilityLevel": "FULL"}
    assert registry.code("DELETE", "/config/:.c:s") == [404, 40401]
    assert registry.ask("GET", in_scope) == {"compatibilityLevel": "NONE"}


def test_a_level_that_was_deleted_for_all_is_the_default_again() -> None:
    registry = Registry()
    registry.ask("PUT", "/config", {"compatibility": "FULL"})
    assert registry.ask("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert registry.ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


def test_normalize_sorts_what_has_no_order() -> None:
    registry = Registry()
    one = {"type": "string", "b": 1, "a": 2}
    other = {"type": "string", "a": 2, "b": 1}
    assert registry.register("s", one, "?normalize=true") == 1
    assert registry.register("s", other, "?normalize=true") == 1
    registry.ask("PUT", "/config/s", {"normalize": True})
    assert registry.ask("POST", "/subjects/s", {"schema": json.dumps(one)})["id"] == 1


def test_a_read_only_subject_takes_nothing() -> None:
    registry = Registry()
    registry.register("s", BASE)
    assert registry.ask("PUT", "/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert registry.register("s", MORE)[:2] == [422, 42205]
    assert registry.code("DELETE", "/subjects/s") == [422, 42205]
    assert registry.code("GET", "/mode/t") == [404, 40409]
    assert registry.ask("GET", "/mode/t?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert registry.ask("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert registry.ask("DELETE", "/subjects/s") == [1]


def test_import_takes_ids_and_versions_as_they_come() -> None:
    registry = Registry()
    assert registry.register("s", BASE, id=7)[:2] == [422, 42205]
    registry.ask("PUT", "/mode/s", {"mode": "IMPORT"})
    assert registry.register("s", BASE)[:2] == [422, 42205]
    assert registry.register("s", BASE, id=7, version=3) == 7
    assert registry.register("s", MORE, id=7, version=4)[:2] == [422, 42205]
    assert registry.register("t", WITHOUT_B) == 8
    assert registry.ask("GET", "/subjects/s/versions") == [3]


def test_import_needs_an_empty_scope_or_force() -> None:
    registry = Registry()
    registry.register("s", BASE)
    assert registry.code("PUT", "/mode/s", {"mode": "IMPORT"}) == [422, 42205]
    assert registry.ask("PUT", "/mode/s?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    registry.register("t", BASE)
    registry.ask("DELETE", "/subjects/t")
    assert registry.ask("PUT", "/mode/t", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert registry.ask("GET", "/subjects?deleted=true") == ["s"]


ADDRESS = record("street", name="Address")
PERSON = record(("home", "Address"), name="Person")


def refer(subject: str = "address", version: int = 1) -> list[dict[str, Any]]:
    return [{"name": "Address", "subject": subject, "version": version}]


def test_a_schema_refers_to_another_one() -> None:
    registry = Registry()
    assert registry.register("p", PERSON, references=refer())[:2] == [422, 42201]
    registry.register("address", ADDRESS)
    assert registry.register("p", PERSON, references=refer(version=-1)) == 2
    assert registry.ask("GET", "/schemas/ids/2")["references"] == refer()
    assert registry.ask("GET", "/subjects/address/versions/1/referencedby") == [2]
    assert registry.code("DELETE", "/subjects/address") == [422, 42206]
    assert registry.code("DELETE", "/subjects/address/versions/1") == [422, 42206]
    registry.ask("DELETE", "/subjects/p")
    assert registry.ask("DELETE", "/subjects/address") == [1]
    assert registry.code("DELETE", "/subjects/address?permanent=true") == [422, 42206]


def test_contexts_count_their_own_ids() -> None:
    registry = Registry()
    registry.register("s", BASE)
    assert registry.register(":.c:s", MORE) == 1
    assert registry.ask("GET", "/contexts") == [".", ".c"]
    assert registry.ask("GET", "/subjects") == [":.c:s", "s"]
    assert registry.ask("GET", "/subjects?subjectPrefix=:.c:") == [":.c:s"]
    assert registry.ask("GET", "/subjects?subjectPrefix=") == ["s"]
    in_context = registry.ask("GET", "/schemas/ids/1?subject=:.c:")
    assert json.loads(in_context["schema"]) == MORE
    assert json.loads(registry.ask("GET", "/schemas/ids/1")["schema"]) == BASE


def test_a_context_in_the_path_is_one_in_the_subject() -> None:
    registry = Registry()
    body = {"schema": json.dumps(BASE)}
    registry.ask("POST", "/contexts/.c/subjects/s/versions", body)
    assert registry.ask("GET", "/contexts/:.c:/subjects") == [":.c:s"]
    assert registry.ask("GET", "/contexts/.c/subjects/s/versions/1")["subject"] == ":.c:s"
    assert json.loads(registry.ask("GET", "/contexts/.c/schemas/ids/1")["schema"]) == BASE
    registry.ask("PUT", "/contexts/.c/config", {"compatibility": "FULL"})
    assert registry.ask("GET", "/config/:.c:") == {"compatibilityLevel": "FULL"}


def test_a_subject_without_a_context_is_found_in_the_others() -> None:
    registry = Registry()
    registry.register(":.c:s", BASE)
    assert registry.ask("GET", "/subjects/s/versions/1")["subject"] == ":.c:s"
    assert registry.ask("POST", "/subjects/s", {"schema": json.dumps(BASE)})["id"] == 1
    assert registry.ask("GET", "/subjects/:.:s/versions/1")["subject"] == ":.c:s"


def test_an_empty_context_can_be_deleted() -> None:
    registry = Registry()
    registry.register(":.c:s", BASE)
    assert registry.code("DELETE", "/contexts/.c") == [422, 42211]
    registry.ask("DELETE", "/subjects/:.c:s")
    registry.ask("DELETE", "/subjects/:.c:s?permanent=true")
    assert registry.ask("DELETE", "/contexts/.c") is None
    assert registry.ask("GET", "/contexts") == ["."]


def test_references_stay_in_their_context() -> None:
    registry = Registry()
    registry.register(":.c:address", ADDRESS)
    assert registry.register(":.c:p", PERSON, references=refer()) == 2
    shown = registry.ask("GET", "/subjects/:.c:p/versions/1?referenceFormat=qualified")
    assert shown["references"] == refer(":.c:address")
    assert registry.register("p", PERSON, references=refer())[:2] == [422, 42201]
