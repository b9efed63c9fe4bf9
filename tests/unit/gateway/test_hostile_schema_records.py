"""Records by a schema whose author or writer means harm: told of in one reply, nothing ends."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from headwater_gateway.rest.schemas import new_serde
from headwater_gateway.rest.serdes.port import Serde, SerdeError
from headwater_tier.serializers.avro_bounds import AvroBounds
from headwater_tier.typed.decoding import RegisteredSchema
from unit.gateway.rest_gateways import CLUSTER, Rest, SpiedRegistry, with_rest

LIST_OF_NODES = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "parts", "type": {"type": "array", "items": "Tree"}},
        {"name": "sizes", "type": {"type": "map", "values": "double"}},
    ],
}
NO_BYTES = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}


def serde(kind: str, schema: Any) -> Serde:
    return new_serde(RegisteredSchema(1, kind, json.dumps(schema)))


def test_avro_that_nests_without_end_is_refused() -> None:
    """10 KB of it would overflow the stack of fastavro's compiled code, and end the process."""
    with pytest.raises(SerdeError, match="nests deeper than 200 levels"):
        serde("AVRO", LIST_OF_NODES).decode(b"\x02" * 10_000 + b"\x00")


@pytest.mark.parametrize("items", ["null", NO_BYTES, {"type": "fixed", "name": "F", "size": 0}])
def test_avro_items_without_bytes_are_no_more_than_bytes(items: Any) -> None:
    with pytest.raises(SerdeError, match="a list of 8388608 items within 5 bytes"):
        serde("AVRO", {"type": "array", "items": items}).decode(bytes.fromhex("8080800800"))


def test_avro_of_recursive_schemas_is_walked_to_its_end() -> None:
    named: dict[str, Any] = {}
    schema = fastavro.parse_schema(TREE, named_schemas=named)
    leaf = {"name": "leaf", "parts": [], "sizes": {"a": 1.5}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"name": "root", "parts": [leaf, leaf], "sizes": {}})
    blob, bounds = out.getvalue(), AvroBounds(schema, named)
    bounds.check(blob)
    for end in range(len(blob)):
        with pytest.raises((ValueError, IndexError)):
            bounds.check(blob[:end])
    node = serde("AVRO", LIST_OF_NODES)
    assert node.decode(b"\x02\x00") == {"next": {"Node": {"next": None}}}


def test_a_number_that_a_json_schema_cannot_divide_is_told_in_its_report() -> None:
    with pytest.raises(SerdeError):
        serde("JSON", {"multipleOf": 0.5}).encode(10**400)


def test_a_fault_within_a_batch_does_not_hide_what_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the report of the first record its client would send it again."""

    def encode_plain(_form: Any, value: Any, _where: str) -> bytes:
        if value == "bad":
            raise ZeroDivisionError
        return b"good"

    monkeypatch.setattr("headwater_gateway.rest.schemas.encode_plain", encode_plain)
    entries = [{"id": name, "value": {"type": "STRING", "data": name}} for name in ("good", "bad")]

    async def work(rest: Rest) -> Any:
        path = f"{CLUSTER}/topics/flights/records"
        found = await rest.ask("POST", f"{path}:batch", {"entries": entries})
        assert [row["id"] for row in found["successes"]] == ["good"]
        assert [row["error_code"] for row in found["failures"]] == [500]
        lines = b"".join(json.dumps({"value": row["value"]}).encode() for row in entries)
        streamed = await rest.send("POST", path, lines)
        return [json.loads(line)["error_code"] for line in streamed.text.splitlines()]

    assert with_rest(work, registry=SpiedRegistry()) == [200, 500]
