"""Subjects, versions, ids: what registering, looking up and deleting answer."""

from __future__ import annotations

import json

from unit.registry.registries import Registry, record

ONE, TWO = record("a"), record("a", ("b", "int", 0))


def test_a_schema_gets_an_id_and_a_version_and_is_found_by_both() -> None:
    registry = Registry()
    assert registry.register("s", ONE) == 1
    by_id = registry.ask("GET", "/schemas/ids/1")
    assert json.loads(by_id["schema"]) == ONE
    version = registry.ask("GET", "/subjects/s/versions/latest")
    assert (version["subject"], version["version"], version["id"]) == ("s", 1, 1)
    assert version["guid"] == by_id["guid"]
    assert registry.ask("GET", f"/schemas/guids/{version['guid']}")["schema"] == by_id["schema"]
    assert registry.ask("GET", f"/schemas/guids/{version['guid']}/ids") == [
        {"context": ".", "id": 1}
    ]


def test_the_same_schema_has_one_id_in_all_subjects_and_one_version_in_each() -> None:
    registry = Registry()
    assert [registry.register(s, ONE) for s in ("s", "s", "t")] == [1, 1, 1]
    assert registry.ask("GET", "/subjects/s/versions") == [1]
    assert registry.ask("GET", "/schemas/ids/1/subjects") == ["s", "t"]
    assert registry.ask("GET", "/schemas/ids/1/versions") == [
        {"subject": "s", "version": 1},
        {"subject": "t", "version": 1},
    ]


def test_other_white_space_key_order_and_spelling_of_names_are_the_same_avro_schema() -> None:
    registry = Registry()
    assert registry.register("s", {"type": "record", "name": "n.R", "fields": []}) == 1
    same = '{"fields":[],  "namespace":"n", "name":"R", "type":"record"}'
    assert registry.register("s", same) == 1
    assert registry.ask("POST", "/subjects/s", {"schema": same})["version"] == 1


def test_what_does_not_exist_has_a_code_of_its_own() -> None:
    registry = Registry()
    registry.register("s", ONE)
    assert registry.code("GET", "/subjects/no/versions") == [404, 40401]
    assert registry.code("GET", "/subjects/no/versions/1") == [404, 40401]
    assert registry.code("GET", "/subjects/s/versions/9") == [404, 40402]
    assert registry.code("GET", "/schemas/ids/9") == [404, 40403]
    assert registry.code("GET", "/schemas/guids/none") == [404, 40403]
    assert registry.code("POST", "/subjects/s", {"schema": json.dumps(TWO)}) == [404, 40403]
    assert registry.code("POST", "/subjects/no", {"schema": json.dumps(TWO)}) == [404, 40401]
    assert registry.code("GET", "/nothing") == [404, 404]


def test_bad_input_is_told_with_the_codes_of_confluent() -> None:
    registry = Registry()
    registry.register("s", ONE)
    assert registry.code("GET", "/subjects/s/versions/zero") == [422, 42202]
    assert registry.code("GET", "/subjects/s/versions/0") == [422, 42202]
    assert registry.register("s", '{"type":"record"}')[:2] == [422, 42201]
    assert registry.register("s", "")[:2] == [422, 42201]
    assert registry.register("s", ONE, schemaType="XML")[:2] == [422, 42201]
    assert registry.register("s%00", ONE)[:2] == [422, 42208]
    assert registry.code("PUT", "/config", {"compatibility": "SOME"}) == [422, 42203]
    assert registry.code("PUT", "/mode", {"mode": "SOME"}) == [422, 42204]
    assert registry.code("POST", "/subjects/s", ["not an object"]) == [422, 422]


def test_a_subject_may_hold_a_slash() -> None:
    registry = Registry()
    assert registry.register("a%2Fb", ONE) == 1
    assert registry.ask("GET", "/subjects") == ["a/b"]
    assert registry.ask("GET", "/subjects/a%2Fb/versions/1")["subject"] == "a/b"


def test_a_soft_deletion_hides_and_a_permanent_one_follows_it() -> None:
    registry = Registry()
    registry.register("s", ONE)
    assert registry.code("DELETE", "/subjects/s?permanent=true") == [404, 40405]
    assert registry.ask("DELETE", "/subjects/s") == [1]
    assert registry.ask("GET", "/subjects") == []
    assert registry.ask("GET", "/subjects?deleted=true") == ["s"]
    assert registry.ask("GET", "/subjects?deletedOnly=true") == ["s"]
    assert registry.ask("GET", "/subjects/s/versions/1?deleted=true")["deleted"] is True
    assert registry.ask("GET", "/schemas/ids/1")["schema"]  # data is still read
    assert registry.code("DELETE", "/subjects/s") == [404, 40404]
    assert registry.ask("DELETE", "/subjects/s?permanent=true") == [1]
    assert registry.ask("GET", "/subjects?deleted=true") == []
    assert registry.code("GET", "/schemas/ids/1") == [404, 40403]
    assert registry.code("DELETE", "/subjects/s") == [404, 40401]


def test_one_version_is_deleted_softly_then_for_good() -> None:
    registry = Registry()
    registry.register("s", ONE)
    registry.register("s", TWO)
    assert registry.code("DELETE", "/subjects/s/versions/1?permanent=true") == [404, 40407]
    assert registry.ask("DELETE", "/subjects/s/versions/latest") == 2
    assert registry.code("DELETE", "/subjects/s/versions/2") == [404, 40406]
    assert registry.ask("GET", "/subjects/s/versions?deletedAsNegative=true") == [1, -2]
    assert registry.ask("GET", "/subjects/s/versions?deletedOnly=true") == [2]
    assert registry.ask("DELETE", "/subjects/s/versions/2?permanent=true") == 2
    assert registry.code("DELETE", "/subjects/s/versions/9") == [404, 40402]


def test_a_schema_registered_again_after_a_soft_deletion_keeps_its_id() -> None:
    registry = Registry()
    registry.register("s", ONE)
    registry.ask("DELETE", "/subjects/s")
    assert registry.register("s", ONE) == 1
    assert registry.ask("GET", "/subjects/s/versions?deleted=true") == [2]


def test_no_id_is_given_twice_even_after_a_permanent_deletion_and_a_restart() -> None:
    registry = Registry()
    registry.register("s", ONE)
    registry.register("t", TWO)
    registry.ask("DELETE", "/subjects/t")
    registry.ask("DELETE", "/subjects/t?permanent=true")
    records = {key: (key, value) for key, value in registry.store.records}  # compacted
    registry.store.records = [row for row in records.values() if row[1] is not None]
    again = registry.restarted()
    assert again.register("t", record("c")) == 3
    assert again.ask("GET", "/schemas/ids/1?fetchMaxId=true")["maxId"] == 3


def test_a_restart_finds_everything() -> None:
    registry = Registry()
    registry.register("s", ONE, metadata={"properties": {"owner": "ann"}})
    registry.register(":.c:s", TWO)
    registry.ask("PUT", "/config/s", {"compatibility": "FULL"})
    registry.ask("PUT", "/mode/s", {"mode": "READONLY"})
    again = registry.restarted()
    for path in ("/schemas?deleted=true", "/config/s", "/mode/s", "/contexts"):
        assert again.ask("GET", path) == registry.ask("GET", path)
    found = again.ask("GET", "/subjects/s/metadata?key=owner&value=ann")
    assert found["metadata"] == {"properties": {"owner": "ann"}}
    assert again.code("GET", "/subjects/s/metadata?key=owner&value=bob") == [404, 40403]


def test_lists_come_in_pages() -> None:
    registry = Registry()
    for name in ("a", "b", "c"):
        registry.register(name, ONE)
    assert registry.ask("GET", "/subjects?offset=1&limit=1") == ["b"]
    assert [v["subject"] for v in registry.ask("GET", "/schemas?subjectPrefix=c")] == ["c"]


def test_the_text_alone_is_plain() -> None:
    registry = Registry()
    registry.register("s", ONE)
    reply = registry.client.get("/subjects/s/versions/1/schema")
    assert json.loads(reply.text) == ONE
    assert registry.client.get("/schemas/ids/1/schema").text == reply.text
