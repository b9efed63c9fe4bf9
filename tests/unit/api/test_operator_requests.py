"""BrokerStatus, OffsetsAtBytes, TierHint, DrainBroker: authorised requests of the data plane."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k10009_broker_status import BrokerStatusRequest, BrokerStatusResponse
from headwater.wire.apis.k10010_offsets_at_bytes import (
    OffsetAtBytesPartition,
    OffsetsAtBytesRequest,
    OffsetsAtBytesResponse,
)
from headwater.wire.apis.k10011_tier_hint import TierHintRequest, TierHintResponse
from headwater.wire.apis.k10012_drain_broker import DrainBrokerRequest, DrainBrokerResponse
from headwater_broker.api.broker_controls import BrokerControls
from solo_broker import SoloBroker
from unit.api.test_rights import Grants, cluster, topic
from unit.network.test_data_plane import serve

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
Right = tuple[Operation, ResourceType, str]


@pytest.mark.parametrize(
    ("granted", "code"),
    [([], REFUSED), ([cluster(Operation.ALTER)], REFUSED), ([cluster(Operation.DESCRIBE)], 0)],
)
def test_status_needs_describe_on_the_cluster(
    tmp_path: Path, granted: list[Right], code: int
) -> None:
    async def document() -> str:
        return '{"format":1}'

    async def story(broker: SoloBroker, c: Connection) -> None:
        reply = await c.call(BrokerStatusRequest(), BrokerStatusResponse)
        assert reply.error_code == code
        assert reply.document == ("" if code else '{"format":1}')

    serve(tmp_path, story, authorizer=Grants(*granted), controls=BrokerControls(status=document))


@pytest.mark.parametrize(
    ("granted", "stops"),
    [([], False), ([cluster(Operation.DESCRIBE)], False),
     ([cluster(Operation.CLUSTER_ACTION)], True)],
)  # fmt: skip
def test_a_broker_drains_for_who_may_act_on_the_cluster(
    tmp_path: Path, granted: list[Right], stops: bool
) -> None:
    reasons: list[str] = []

    async def story(broker: SoloBroker, c: Connection) -> None:
        reply = await c.call(DrainBrokerRequest(), DrainBrokerResponse)
        assert reply.error_code == (0 if stops else REFUSED)

    controls = BrokerControls(stop=reasons.append)
    serve(tmp_path, story, authorizer=Grants(*granted), controls=controls)
    assert reasons == (["request of User:ANONYMOUS"] if stops else [])


def test_offsets_at_bytes_are_told_to_readers_of_the_topic_only(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        for name in ("mine", "theirs"):
            broker.create_topic(name)
        request = OffsetsAtBytesRequest(
            partitions=tuple(
                OffsetAtBytesPartition(topic=name, partition=0, start_offset=0, max_bytes=1)
                for name in ("mine", "theirs", "absent")
            )
        )
        reply = await c.call(request, OffsetsAtBytesResponse)
        assert [(row.topic, row.error_code, row.end_offset) for row in reply.partitions] == [
            ("mine", ErrorCode.NONE, 0),
            ("theirs", ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1),
            ("absent", ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1),
        ]

    serve(tmp_path, story, authorizer=Grants(topic(Operation.READ, "mine")))


def test_a_tier_hint_of_who_may_not_read_the_topic_reads_no_table(tmp_path: Path) -> None:
    read: list[str] = []

    async def read_table(name: str, _topic_id: UUID) -> bool:
        read.append(name)
        return True

    async def story(broker: SoloBroker, c: Connection) -> None:
        codes = []
        for topic_id in (broker.create_topic("mine"), broker.create_topic("theirs"), UUID(int=7)):
            reply = await c.call(TierHintRequest(topic_id=topic_id), TierHintResponse)
            codes.append(reply.error_code)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert codes == [ErrorCode.NONE, unknown, unknown]

    controls = BrokerControls(read_table=read_table)
    serve(tmp_path, story, authorizer=Grants(topic(Operation.READ, "mine")), controls=controls)
    assert read == ["mine"]
