"""ACLs on a real cluster: the SDK and kafka-acls.sh change them, and clients feel it at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from headwater import NewTopic
from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import HeadwaterError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from integration.acl_tools import OPEN_WITH_AUTHORIZER, change_acls
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.tool_bench import Bench

pytestmark = pytest.mark.integration

FELT_S = 1.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("acls")
    properties = {**OPEN_WITH_AUTHORIZER, "headwater.audit.topic": "audit"}
    with LocalCluster(folder / "c", next_base_port(folder), 2, properties) as cluster:
        yield cluster


def denial(topic: str, operation: Operation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        PatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        PermissionType.DENY,
    )


def test_a_denial_is_felt_on_every_broker_within_a_second(guarded: LocalCluster) -> None:
    guarded.create_topic("felt", partitions=2)
    acl = denial("felt", Operation.WRITE)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "retries": 0,
            "topic.metadata.refresh.interval.ms": 100,
        }
    )

    def outcomes() -> list[int]:
        codes: list[int] = []
        for partition in (0, 1):
            try:
                producer.produce(
                    "felt", b"x", partition=partition,
                    on_delivery=lambda e, _m: codes.append(e.code() if e else 0),
                )  # fmt: skip
            except confluent_kafka.KafkaException as error:  # as it knows by its metadata
                codes.append(error.args[0].code())
        assert producer.flush(30) == 0
        return codes

    with guarded.admin() as admin:
        assert outcomes() == [0, 0]
        admin.create_acls([acl])
        time.sleep(FELT_S)
        assert outcomes() == [29, 29]
        assert admin.describe_acls() == [acl]
        assert admin.delete_acls([AclFilter(name="felt")]) == [acl]
        time.sleep(FELT_S)
        assert outcomes() == [0, 0]


def test_a_parked_fetch_ends_when_its_right_goes(guarded: LocalCluster) -> None:
    guarded.create_topic("parked")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "group.id": "parked",
            "fetch.wait.max.ms": 20_000,
            "socket.timeout.ms": 60_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("parked", 0, 0)])
    assert consumer.poll(2) is None
    with guarded.admin() as admin:
        admin.create_acls([denial("parked", Operation.READ)])
        began = time.monotonic()
        message = consumer.poll(10)
        took = time.monotonic() - began
        admin.delete_acls([AclFilter(name="parked")])
    consumer.close()
    assert message is not None
    assert message.error().code() == 29
    assert took < 5


def test_denials_and_changes_reach_the_audit_topic(guarded: LocalCluster) -> None:
    guarded.create_topic("audit")
    acl = denial("audited", Operation.READ)
    with guarded.admin() as admin:
        admin.create_topics([NewTopic("audited", 1, 1)])
        admin.alter_configs("topic", "audited", {"retention.ms": "60000"})
        admin.create_acls([acl])
        admin.delete_acls([AclFilter(name="audited")])
        admin.delete_topics(["audited"])
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": guarded.bootstrap, "group.id": "a", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition("audit", 0, 0)])
    names = ("CreateTopics", "CreateAcls", "IncrementalAlterConfigs", "DeleteAcls", "DeleteTopics")
    wanted = {f"User:ANONYMOUS requested {name} from host = 127.0.0.1" for name in names}
    deadline = time.monotonic() + 30
    while wanted:
        assert time.monotonic() < deadline, wanted
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            line = message.value().decode()
            wanted = {part for part in wanted if not (part in line and "audited" in line)}
    consumer.close()


def test_kafka_acls_sh(guarded: LocalCluster, tmp_path: Path) -> None:
    change_acls(Bench(guarded, tmp_path))


def test_an_authorizer_without_super_users_does_not_start(tmp_path: Path) -> None:
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER}
    cluster = LocalCluster(tmp_path / "c", next_base_port(tmp_path), 1, properties)
    with pytest.raises(HeadwaterError):
        cluster.start()
    cluster.stop()
    logs = "".join(p.read_text() for p in (tmp_path / "c" / "logs").iterdir())
    assert "set super.users=User:name" in logs
