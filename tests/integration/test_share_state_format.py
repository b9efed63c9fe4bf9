"""Kafka's own tools read `__share_group_state` as the coordinator writes it, holds included.

`holds` is a tagged field of Headwater's: Kafka's schemas do not know it, and pass it over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater import Admin, NewTopic, Producer
from headwater.ids import id_text
from headwater.records.builder import BatchBuilder
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.share_state import record_schemas as schemas
from headwater_broker.coordinator.share_state.records import snapshot_record, update_record
from headwater_broker.replica.share.ports import SharePartitionKey
from integration.jvm_tools import kafka_tool
from whole_cluster import ServedCluster

pytestmark = pytest.mark.integration

TOPIC_ID = UUID(int=7)
KEY = SharePartitionKey("queue", TOPIC_ID, 1)
ACKED = schemas.StateBatch(first_offset=40, last_offset=49, delivery_state=2, delivery_count=3)
HOLDS = bytes(range(200))
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"


def records() -> list[StoredRecord]:
    """A snapshot, an update and a tombstone of one share partition."""
    snapshot = schemas.ShareSnapshotValue(
        snapshot_epoch=1,
        state_epoch=2,
        leader_epoch=3,
        start_offset=40,
        delivery_complete_count=10,
        create_timestamp=1_000,
        write_timestamp=2_000,
        state_batches=(ACKED,),
        holds=HOLDS,
    )
    update = schemas.ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=4,
        start_offset=45,
        delivery_complete_count=5,
        state_batches=(ACKED,),
        holds=HOLDS,
    )
    return [snapshot_record(KEY, snapshot), update_record(KEY, update), snapshot_record(KEY, None)]


def check(snapshot: Any, update: Any) -> None:
    """What Kafka's schemas found in both values."""
    row = {"firstOffset": 40, "lastOffset": 49, "deliveryState": 2, "deliveryCount": 3}
    assert snapshot == {
        "snapshotEpoch": 1,
        "stateEpoch": 2,
        "leaderEpoch": 3,
        "startOffset": 40,
        "deliveryCompleteCount": 10,
        "createTimestamp": 1_000,
        "writeTimestamp": 2_000,
        "stateBatches": [row],
    }
    assert update == {
        "snapshotEpoch": 1,
        "leaderEpoch": 4,
        "startOffset": 45,
        "deliveryCompleteCount": 5,
        "stateBatches": [row],
    }


def test_dump_log_segments_decodes_share_group_state(tmp_path: Path) -> None:
    builder = BatchBuilder()
    for record in records():
        builder.append(2_000, record.key, record.value)
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(builder.build())
    shown = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--share-group-state-decoder", "--files", str(log)
    )
    snapshot, update, deleted = (line for line in shown.splitlines() if '"queue"' in line)
    check(_payload(snapshot), _payload(update))
    assert deleted.endswith("payload: <DELETE>")


def test_the_console_consumer_s_formatter_reads_share_group_state(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 1) as cluster:
        with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            admin.create_topics([NewTopic("state", 1, 1)])
            for record in records():
                producer.send("state", record.value, key=record.key)
        shown = kafka_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", "state", "--from-beginning"),
            *("--max-messages", "3", "--formatter", FORMATTER),
        )
    rows = _documents(shown)
    assert [row["key"]["type"] for row in rows] == [0, 1, 0]
    expected = {"groupId": "queue", "topicId": id_text(TOPIC_ID), "partition": 1}
    assert [row["key"]["data"] for row in rows] == [expected] * 3
    check(rows[0]["value"]["data"], rows[1]["value"]["data"])
    assert rows[2]["value"] is None


def _documents(text: str) -> list[Any]:
    """The JSON documents in a text: the formatter writes one behind the other."""
    found, at = [], text.find("{")
    while at >= 0:
        document, end = json.JSONDecoder().raw_decode(text, at)
        found.append(document)
        at = text.find("{", end)
    return found


def _payload(line: str) -> Any:
    text = line.split("payload: ", 1)[1]
    return json.loads(text)["data"]
