"""ACLs on a real cluster: the SDK and kafka-acls.sh change them, and clients feel it at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import HeadwaterError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.jvm_tools import kafka_tool

pytestmark = pytest.mark.integration

ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
FELT_S = 1.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Open to everyone where there are no ACLs: its listeners have no login."""
    folder = tmp_path_factory.mktemp("acls")
    properties = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "true",
    }
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
        {"bootstrap.servers": guarded.bootstrap, "linger.ms": 0, "retries": 0}
    )

    def outcomes() -> list[object]:
        codes: list[object] = []
        for partition in (0, 1):
            producer.produce(
                "felt", b"x", partition=partition, on_delivery=lambda e, _m: codes.append(e)
            )
        assert producer.flush(30) == 0
        return codes

    with guarded.admin() as admin:
        assert outcomes() == [None, None]
        admin.create_acls([acl])
        time.sleep(FELT_S)
        assert [e.code() for e in outcomes()] == [29, 29]  # type: ignore[attr-defined]
        assert admin.describe_acls() == [acl]
        assert admin.delete_acls([AclFilter(name="felt")]) == [acl]
        time.sleep(FELT_S)
        assert outcomes() == [None, None]


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


def test_kafka_acls_sh(guarded: LocalCluster) -> None:
    server = ("--bootstrap-server", guarded.bootstrap)
    added = kafka_tool(
        ACL_COMMAND, *server, "--add", "--allow-principal", "User:alice", "--producer",
        "--topic", "team-", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert "Current ACLs" in added or "Adding ACLs" in added
    listed = kafka_tool(ACL_COMMAND, *server, "--list", "--principal", "User:alice")
    assert "patternType=PREFIXED" in listed
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"operation={operation}" in listed
    kafka_tool(
        ACL_COMMAND, *server, "--remove", "--force", "--topic", "team-",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert "alice" not in kafka_tool(ACL_COMMAND, *server, "--list")


def test_an_authorizer_without_super_users_does_not_start(tmp_path: Path) -> None:
    properties = {"authorizer.class.name": STANDARD_AUTHORIZER}
    cluster = LocalCluster(tmp_path / "c", next_base_port(tmp_path), 1, properties)
    with pytest.raises(HeadwaterError):
        cluster.start()
    cluster.stop()
    logs = "".join(p.read_text() for p in (tmp_path / "c" / "logs").iterdir())
    assert "set super.users=User:name" in logs
