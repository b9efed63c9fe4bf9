"""Without a right, existing and missing resources get the same response.

Every registered API key is requested. Its request is filled in from the schema: one element per
array, and names of topics and groups in the fields that are named so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.wire.schema import FieldSpec, Message, Struct, encode
from headwater_broker.api.registry import ApiRow, load_handlers
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, serve

TOPIC_FIELDS = {"name", "topic", "topics", "topic_names", "topic_name", "resource_name"}
GROUP_FIELDS = {"group_id", "groups", "groups_names"}
NAMES_LAST = {0: 12, 1: 12, 8: 9, 9: 9, 20: 5}
"""The last version that names topics, where a later one takes ids: Kafka holds that an id is not
secret, so there is nothing to hide from those who know one."""
VALUES: dict[int, dict[str, Any]] = {
    0: {"records": batch(), "acks": 1},
    1: {"replica_id": -1},
    2: {"replica_id": -1, "timestamp": -1},
    10: {"key": "", "coordinator_keys": ()},
    32: {"resource_type": 2, "configuration_keys": None},
    33: {"resource_type": 2},
    44: {"resource_type": 2},
    60: {"endpoint_type": 1},
    75: {"cursor": None, "response_partition_limit": 10},
}


class Acls(AllowAll):
    """Allows everything, and then nothing."""

    def __init__(self) -> None:
        self.generation = 0

    def revoke(self) -> None:
        self.generation += 1

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return not self.generation


def filled(cls: type[Struct], version: int, names: Mapping[str, str], given: dict[str, Any]) -> Any:
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        spec: FieldSpec = field.metadata["wire"]
        if version not in spec.versions:
            continue
        if field.name in given:
            values[field.name] = given[field.name]
        elif not isinstance(spec.kind, str):
            one = filled(spec.kind, version, names, given)
            values[field.name] = (one,) if spec.is_array else one
        elif spec.kind == "string" and field.name in names:
            name = names[field.name]
            values[field.name] = (name,) if spec.is_array else name
        elif spec.is_array:
            values[field.name] = (0,) if spec.kind.startswith("int") else ()
    return cls(**values)


def request_of(row: ApiRow, topic: str, group: str) -> tuple[Message, int]:
    version = NAMES_LAST.get(row.key, row.high)
    names = dict.fromkeys(TOPIC_FIELDS, topic) | dict.fromkeys(GROUP_FIELDS, group)
    return filled(row.request, version, names, VALUES.get(row.key, {})), version


async def commit(c: Connection, group: str, topic: str) -> None:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topics = (OffsetCommitRequestTopic(name=topic, partitions=(row,)),)
    request = OffsetCommitRequest(group_id=group, topics=topics)
    reply = await c.call(request, OffsetCommitResponse, version=9)
    assert reply.topics[0].partitions[0].error_code == ErrorCode.NONE


def rows() -> list[Any]:
    return [pytest.param(row, id=row.request.__name__) for row in load_handlers().values()]


@pytest.mark.parametrize("row", rows())
def test_a_refusal_does_not_tell_what_exists(tmp_path: Path, row: ApiRow) -> None:
    acls = Acls()

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("here-t")
        broker.create_topic(OFFSETS_TOPIC)
        await commit(c, "here-g", "here-t")
        acls.revoke()
        answers = []
        for place in ("here", "none"):
            request, version = request_of(row, f"{place}-t", f"{place}-g")
            reply = await c.call(request, row.response, version=version)
            answers.append(encode(reply, version).replace(place.encode(), b"name"))
        assert answers[0] == answers[1]

    serve(tmp_path, story, authorizer=acls, offsets_topic_num_partitions="1")
