"""ACLs on a real cluster: the SDK and kafka-acls.sh change them, and clients feel it at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import duckdb
import pytest
from deltalake import DeltaTable

from headwater import NewTopic
from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.local.service_spec import tiering_service
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from integration.acl_tools import OPEN_WITH_AUTHORIZER, change_acls
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.tiered_topics import at, cli
from integration.tool_bench import Bench

pytestmark = pytest.mark.integration

FELT_S = 1.0
AUDIT_TABLE = {
    "remote_storage_enable": "true",
    "headwater_value_format": "json",
    "delta_interval_ms": "200",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder, service = tmp_path_factory.mktemp("acls"), tiering_service()
    assert service is not None
    properties = {**OPEN_WITH_AUTHORIZER, "headwater.audit.topic": "audit"}
    where, port = folder / "c", next_base_port(folder)
    with LocalCluster(where, port, 2, properties, services=(service,)) as cluster:
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


def test_denials_and_changes_are_rows_of_the_audit_table(guarded: LocalCluster) -> None:
    """The broker's lines, by the audit topic and the tiering service, as columns to query."""
    guarded.create_topic("audit", **AUDIT_TABLE)
    acl = denial("audited", Operation.ALTER_CONFIGS)
    with guarded.admin() as admin:
        admin.create_topics([NewTopic("audited", 1, 1)])
        admin.alter_configs("topic", "audited", {"retention.ms": "60000"})
        admin.create_acls([acl])

        def is_refused() -> bool:
            try:
                admin.alter_configs("topic", "audited", {"retention.ms": "60000"})
            except KafkaError as error:
                return error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return False

        LocalCluster.wait_until(is_refused, "the denial")
        admin.delete_acls([AclFilter(name="audited")])
        admin.delete_topics(["audited"])
    text = "ACL DENY ALTER_CONFIGS to User:ANONYMOUS from * on Topic:LITERAL:audited"
    changes = {
        "CreateTopics": "topic audited, 1 partitions, replication factor 1",
        "IncrementalAlterConfigs": "topic audited: retention.ms=60000",
        "CreateAcls": text,
        "DeleteAcls": text,
        "DeleteTopics": "topic audited",
    }
    wanted = {
        *((name, "", "", "NONE", detail) for name, detail in changes.items()),
        ("", "ALTER_CONFIGS", "Topic:LITERAL:audited", "DENIED", f"MatchingAcl(acl={acl})"),
    }
    parts = "request, operation, resource, result, detail"
    where = "principal = 'User:ANONYMOUS' and host = '127.0.0.1' and line like '%audited%'"

    def found() -> set[tuple[str, ...]]:
        done = cli("tier", "typed", "audit", *at(guarded), "--json", ok=False)
        if done.returncode:
            return set()  # there is no table yet
        state = json.loads(done.stdout)
        assert state["quarantined"] == 0
        files = DeltaTable(state["uri"]).file_uris()
        if not files:
            return set()  # the table is made before its first rows are decoded
        asked = f"select distinct {parts} from read_parquet({files}) where {where}"
        return {(*row,) for row in duckdb.sql(asked).fetchall()}

    LocalCluster.wait_until(lambda: wanted <= found(), "the rows of the audit table", 60.0)


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
