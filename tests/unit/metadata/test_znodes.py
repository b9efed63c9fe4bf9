"""Data of ZooKeeper nodes: round trips, Kafka's formats, and formats of old tools."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

import pytest

from headwater.ids import id_text
from headwater.wire.control import BrokerEndpoint
from headwater_broker.metadata import tool_znodes, znodes
from headwater_broker.metadata.log_dir_events import decode_log_dir_event, encode_log_dir_event


def test_ids_are_base64url_without_padding() -> None:
    value = UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert id_text(value) == "ASNFZ4mrze8BI0VniavN7w"
    assert znodes.uuid_from_text("ASNFZ4mrze8BI0VniavN7w") == value
    with pytest.raises(znodes.ZnodeError):
        znodes.uuid_from_text("short")


def test_controller_claim() -> None:
    claim = znodes.ControllerClaim(3, 1234, "host:9")
    row = json.loads(claim.encode())
    assert (row["brokerid"], row["timestamp"]) == (3, "1234")
    assert znodes.ControllerClaim.decode(claim.encode()) == claim
    assert znodes.ControllerClaim.decode(b"7").broker_id == 7
    with pytest.raises(znodes.ZnodeError):
        znodes.ControllerClaim.decode(b"nonsense")


def test_topic_assignment() -> None:
    value = znodes.TopicAssignment(
        topic_id=UUID(int=5), partitions={0: (1, 2), 10: (2, 1), 2: (3,)}, adding={0: (2,)}
    )
    row = json.loads(value.encode())
    assert row["version"] == 3
    assert list(row["partitions"]) == ["0", "2", "10"]
    assert znodes.TopicAssignment.decode("t", value.encode()) == value
    old = znodes.TopicAssignment.decode("t", b'{"version":1,"partitions":{"0":[1,2]}}')
    assert old.topic_id == znodes.NO_DIRECTORY
    assert old.partitions == {0: (1, 2)}
    with pytest.raises(znodes.ZnodeError, match="/brokers/topics/t"):
        znodes.TopicAssignment.decode("t", b'{"partitions":{"x":[1]}}')


def test_partition_record() -> None:
    value = znodes.PartitionRecord(
        leader=1, leader_epoch=4, isr=(2, 1), controller_epoch=9, directories={1: UUID(int=3)}
    )
    assert znodes.PartitionRecord.decode("/p", value.encode()) == value
    shorter = dataclasses.replace(value, elr=(3,), uncreated=(2, 4))
    assert znodes.PartitionRecord.decode("/p", shorter.encode()) == shorter
    kafka = b'{"isr":[1],"leader":1,"version":1,"controller_epoch":2,"leader_epoch":0}'
    assert znodes.PartitionRecord.decode("/p", kafka).directories == {}
    with pytest.raises(znodes.ZnodeError, match="/p"):
        znodes.PartitionRecord.decode("/p", b"{}")


def test_registration() -> None:
    value = znodes.BrokerRegistration(
        broker_id=2,
        cluster_id="c",
        endpoints=(BrokerEndpoint(listener="PLAINTEXT", host="h", port=9092),),
        control_address="h:1",
        rack="r",
        directory_ids=(UUID(int=1), UUID(int=2)),
        boot_id="b",
        clean_shutdown_epoch=17,
        min_insync_replicas=3,
        timestamp_ms=5,
        protocols={"PLAINTEXT": "SASL_SSL"},
    )
    assert znodes.BrokerRegistration.decode(2, value.encode()) == value
    row = json.loads(value.encode())
    assert row["endpoints"] == ["PLAINTEXT://h:9092"]
    keys = ("host", "port", "jmx_port", "timestamp", "rack")
    assert [row[key] for key in keys] == ["h", 9092, -1, "5", "r"]
    with pytest.raises(znodes.ZnodeError, match="/brokers/ids/2"):
        znodes.BrokerRegistration.decode(2, b'{"version":5}')


def test_the_rest_round_trips() -> None:
    block = znodes.ProducerIdBlock(1, 1000, 1999)
    assert json.loads(block.encode())["block_start"] == "1000"
    assert znodes.ProducerIdBlock.decode(block.encode()) == block
    life = znodes.LastRegistration(8, "boot", 3)
    assert znodes.LastRegistration.decode("/l", life.encode()) == life
    deletion = znodes.Deletion("t", UUID(int=4), {0: (1, 2)}, is_topic_deletion=True)
    assert znodes.Deletion.decode("/d", deletion.encode()) == deletion
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("abc")) == "abc"
    assert znodes.decode_overrides("/c", znodes.encode_overrides({"a": "1"})) == {"a": "1"}
    assert decode_log_dir_event("/e", encode_log_dir_event(3)) == 3


def test_what_tools_write() -> None:
    plan = b'{"version":1,"partitions":[{"topic":"t","partition":"1","replicas":[2,3]}]}'
    assert tool_znodes.decode_partition_list("/p", plan) == {("t", 1): (2, 3)}
    election = b'{"partitions":[{"topic":"t","partition":0}]}'
    assert tool_znodes.decode_partition_list("/p", election) == {("t", 0): ()}
    with pytest.raises(znodes.ZnodeError):
        tool_znodes.decode_partition_list("/p", b"[]")
    assert tool_znodes.decode_config_change(b'"t"') == "topics/t"
    assert tool_znodes.decode_config_change(b'{"version":2,"entity_path":"topics/t"}') == "topics/t"
    for bad in (b"{", b"{}", b'{"version":3,"entity_path":"topics/t"}'):
        with pytest.raises(znodes.ZnodeError):
            tool_znodes.decode_config_change(bad)


OLDEST = {
    "/cluster/id": (znodes.decode_cluster_id, {"id": "abc"}),
    "/controller": (znodes.ControllerClaim.decode, {"brokerid": 1}),
    "/brokers/ids/1": (
        lambda data: znodes.BrokerRegistration.decode(1, data),
        {
            "cluster_id": "c", "endpoints": [], "control_address": "h:1", "directory_ids": [],
            "boot_id": "", "clean_shutdown_epoch": -1, "format": 1,
        },
    ),
    "/brokers/topics/t": (
        lambda data: znodes.TopicAssignment.decode("t", data),
        {"partitions": {"0": [1]}},
    ),
    "/state": (
        lambda data: znodes.PartitionRecord.decode("/state", data),
        {"leader": 1, "leader_epoch": 0, "isr": [1], "controller_epoch": 1},
    ),
    "/config/topics/t": (
        lambda data: znodes.decode_overrides("/config/topics/t", data), {"config": {}}
    ),
    "/config/changes": (tool_znodes.decode_config_change, {"entity_path": "topics/t"}),
    "/latest_producer_id_block": (
        znodes.ProducerIdBlock.decode,
        {"broker": 1, "block_start": "0", "block_end": "9"},
    ),
    "/headwater/lives/1": (
        lambda data: znodes.LastRegistration.decode("/headwater/lives/1", data),
        {"broker_epoch": 1, "boot_id": ""},
    ),
    "/headwater/deletions/x": (
        lambda data: znodes.Deletion.decode("/headwater/deletions/x", data),
        {"topic": "t", "topic_id": "ASNFZ4mrze8BI0VniavN7w", "replicas": {}, "whole": True},
    ),
    "/log_dir_event": (
        lambda data: decode_log_dir_event("/log_dir_event", data),
        {"broker": 1},
    ),
    "/admin/reassign_partitions": (
        lambda data: tool_znodes.decode_partition_list("/admin/reassign_partitions", data),
        {"partitions": []},
    ),
}  # fmt: skip
"""Kind -> its decoder, and the least that it must hold."""


@pytest.mark.parametrize("kind", OLDEST)
def test_old_forms_and_new_keys_are_read_and_newer_versions_refused(kind: str) -> None:
    decode, least = OLDEST[kind]
    plain = decode(json.dumps(least).encode())
    assert decode(json.dumps({**least, "of_the_next_release": {"a": [1]}}).encode()) == plain
    for version in (99, "99", "next", None):
        with pytest.raises(znodes.ZnodeError, match=rf"{kind}.*newer Headwater"):
            decode(json.dumps({**least, "version": version}).encode())


def garbage(value: object) -> Iterator[str]:
    """JSON of `value`, with each number and each text once replaced by an invalid one."""
    if isinstance(value, dict):
        for key in value:
            for bad in garbage(value[key]):
                parts = {**{k: json.dumps(v) for k, v in value.items()}, key: bad}
                yield "{" + ",".join(f"{json.dumps(k)}:{text}" for k, text in parts.items()) + "}"
    if isinstance(value, list):
        for i, each in enumerate(value):
            for bad in garbage(each):
                yield "[" + ",".join([*map(json.dumps, value[:i]), bad]) + "]"
    yield from ("1e999", "NaN", "-Infinity", r'"\ud800"', "[" * 1100, '{"a":' * 1100)


FULL: dict[str, dict[str, object]] = {
    "/admin/reassign_partitions": {
        "partitions": [{"topic": "t", "partition": 1, "replicas": [1]}]
    },
    "/config/topics/t": {"config": {"a": "1"}},
    "/headwater/deletions/x": {**OLDEST["/headwater/deletions/x"][1], "replicas": {"0": [1]}},
    "/brokers/topics/t": {
        "partitions": {"0": [1]}, "adding_replicas": {"0": [1]}, "topic_id": "x"
    },
    "/state": {**OLDEST["/state"][1], "directories": {"1": "x"}, "elr": [1]},
}  # fmt: skip


@pytest.mark.parametrize("kind", OLDEST)
def test_numbers_that_are_none_and_endless_nesting_are_no_nodes(kind: str) -> None:
    decode, least = OLDEST[kind]
    for text in garbage({"version": 1, **FULL.get(kind, least)}):
        with pytest.raises(znodes.ZnodeError):
            decode(text.encode())


@pytest.mark.parametrize("kind", OLDEST)
def test_what_is_almost_too_long_or_too_deep_is_a_node_or_none(kind: str) -> None:
    decode, least = OLDEST[kind]
    digits = json.dumps("9" * 5000)
    for key in least:
        for value in (digits, *("[" * n + "]" * n for n in range(850, 1000))):
            rest = {k: v for k, v in least.items() if k != key}
            with suppress(znodes.ZnodeError):
                decode(f'{json.dumps(rest)[:-1]}{"," if rest else ""}"{key}":{value}}}'.encode())
    for text in (f'{{"version":{digits}}}', f'{{"version":{"[" * 900 + "]" * 900}}}', "9" * 5000):
        with pytest.raises(znodes.ZnodeError):
            decode(text.encode())


def test_a_registration_of_a_newer_format_is_refused() -> None:
    decode, least = OLDEST["/brokers/ids/1"]
    with pytest.raises(znodes.ZnodeError, match="format 2, this broker reads up to 1"):
        decode(json.dumps({**least, "format": 2}).encode())


def test_an_id_read_again_is_the_same_object() -> None:
    text = id_text(UUID(int=7))
    assert znodes.uuid_from_text(text) is znodes.uuid_from_text(text)
