"""The part of Apicurio's own REST interface that its serializers use."""

from __future__ import annotations

import json
from typing import Any

from unit.registry.registries import Registry, record

ROOT = "/apis/registry/v3"
ARTIFACTS = f"{ROOT}/groups/default/artifacts"


def creation(schema: Any, references: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    content = {"content": json.dumps(schema), "contentType": "application/json"}
    if references:
        content["references"] = references  # type: ignore[assignment]
    return {
        "artifactId": "t-value",
        "artifactType": "AVRO",
        "firstVersion": {"content": content},
    }


def test_an_artifact_is_a_subject_and_its_content_id_the_schemas_id() -> None:
    registry = Registry()
    registry.register("other", record("x"))
    path = f"{ARTIFACTS}?ifExists=FIND_OR_CREATE_VERSION"
    made = registry.ask("POST", path, creation(record("a")))
    assert made["version"]["contentId"] == made["version"]["globalId"] == 2
    assert registry.ask("POST", path, creation(record("a")))["version"]["version"] == "1"
    assert registry.ask("GET", "/subjects/t-value/versions") == [1]
    for kind in ("contentIds", "globalIds"):
        text = registry.client.get(f"{ROOT}/ids/{kind}/2").text
        assert json.loads(text) == record("a")
        assert registry.ask("GET", f"{ROOT}/ids/{kind}/2/references") == []
    found = registry.ask("GET", f"{ARTIFACTS}/t-value/versions/branch=latest")
    assert found == made["version"]
    assert registry.client.get(f"{ARTIFACTS}/t-value/versions/1/content").text == text


def test_an_artifact_that_must_be_new_is_refused_when_it_is_not() -> None:
    registry = Registry()
    assert (
        registry.ask("POST", ARTIFACTS, creation(record("a")))["artifact"]["groupId"] == "default"
    )
    assert registry.code("POST", ARTIFACTS, creation(record("a"))) == [409, 409]
    reply = registry.client.post(f"{ROOT}/groups/g/artifacts", json=creation(record("a")))
    assert reply.json()["status"] == reply.status_code == 404
    assert registry.code("POST", ARTIFACTS, {"artifactId": "t"}) == [400, 400]
    assert registry.code("GET", f"{ARTIFACTS}/t-value/versions/odd") == [404, 40402]


def test_a_content_is_searched_in_an_artifact() -> None:
    registry = Registry()
    registry.register("t-value", record("a"))
    path = f"{ROOT}/search/versions?artifactId=t-value&artifactType=AVRO"
    assert registry.ask("POST", path, record("a"))["versions"][0]["contentId"] == 1
    assert registry.ask("POST", path, record("b")) == {"count": 0, "versions": []}


def test_references_are_artifacts_too() -> None:
    registry = Registry()
    registry.register("address", record("street", name="Address"))
    refers = [{"groupId": "default", "artifactId": "address", "version": "1", "name": "Address"}]
    made = registry.ask("POST", ARTIFACTS, creation(record(("home", "Address")), refers))
    number = made["version"]["contentId"]
    assert registry.ask("GET", f"{ROOT}/ids/contentIds/{number}/references") == refers
