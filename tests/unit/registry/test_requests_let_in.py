"""What the registry lets in: hosts, origins, media types, sizes; and its media types out."""

from __future__ import annotations

from unit.registry.registries import Registry

V1 = "application/vnd.schemaregistry.v1+json"


def test_a_strange_host_and_origin_are_refused() -> None:
    registry = Registry()
    assert registry.ask("GET", "/subjects", host="evil.example")[:1] == [421]
    assert registry.ask("GET", "/subjects", host="127.0.0.1:8081") == []
    assert registry.ask("GET", "/subjects", host="[::1]:8081") == []
    assert registry.ask("GET", "/subjects", origin="http://evil.example")[:1] == [403]
    assert registry.ask("GET", "/subjects", origin="http://localhost") == []


def test_a_body_of_another_media_type_is_refused() -> None:
    registry = Registry()
    body = {"schema": '"int"'}
    for kind in (V1, "application/json; charset=utf-8", "application/octet-stream"):
        assert registry.ask("POST", "/subjects/s/versions", body, content_type=kind)["id"] == 1
    assert registry.ask("POST", "/subjects/s/versions", body, content_type="text/plain")[0] == 415


def test_a_huge_body_is_refused() -> None:
    registry = Registry()
    reply = registry.client.post("/subjects/s/versions", content=b" " * (4 * 1024 * 1024 + 1))
    assert reply.status_code == 413


def test_replies_are_in_the_media_type_that_was_asked_for() -> None:
    registry = Registry()
    for accept, kind in (("application/json", "application/json"), ("*/*", V1)):
        reply = registry.client.get("/subjects", headers={"accept": accept})
        assert reply.headers["content-type"] == kind


def test_unknown_methods_and_odd_bodies_are_errors_in_json() -> None:
    registry = Registry()
    assert registry.code("PATCH", "/subjects") == [405, 405]
    reply = registry.client.post("/subjects/s/versions", content=b"{")
    assert reply.json()["error_code"] == 400
    assert registry.ask("GET", "/") == {}
    assert registry.ask("GET", "/v1/metadata/id")["scope"]["clusters"]["kafka-cluster"] == "c1"
    assert registry.ask("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
