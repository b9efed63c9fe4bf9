"""ACLs over sockets: `Admin` and librdkafka against two brokers with the authorizer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from headwater import Admin, NewTopic
from headwater.client.errors import AuthorizationError
from headwater.config.rows_security import STANDARD_AUTHORIZER
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
)
from whole_cluster import ServedCluster

DENIED = 29
"""TOPIC_AUTHORIZATION_FAILED."""
ANYBODY = "User:ANONYMOUS"
PROPERTIES = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin"}


def acl(
    name: str,
    operation: Operation = Operation.READ,
    permission: PermissionType = PermissionType.DENY,
    kind: ResourceType = ResourceType.TOPIC,
    principal: str = ANYBODY,
) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, principal, "*", operation, permission)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """Open to everyone where there are no ACLs: its listeners have no login."""
    rows = {**PROPERTIES, "allow_everyone_if_no_acl_found": "true"}
    with ServedCluster(tmp_path_factory.mktemp("acls"), 2, **rows) as cluster:
        yield cluster


@pytest.fixture
def admin(served: ServedCluster) -> Iterator[Admin]:
    with Admin(served.bootstrap) as admin:
        yield admin
        admin.delete_acls([AclFilter()])  # the next test begins without


def test_acls_are_created_described_and_deleted(admin: Admin) -> None:
    rows = [acl("one"), acl("two", Operation.WRITE), acl("two", principal="User:bob")]
    admin.create_acls(rows)
    admin.create_acls(rows[:1])
    assert admin.describe_acls() == sorted(rows)
    assert admin.describe_acls(AclFilter(principal="User:bob")) == rows[2:]
    assert admin.delete_acls([AclFilter(name="two"), AclFilter(name="none")]) == sorted(rows[1:])
    assert admin.delete_acls([AclFilter()]) == rows[:1]
    assert admin.describe_acls() == []


def test_what_cannot_be_an_acl_is_refused_and_the_rest_is_made(admin: Admin) -> None:
    good = acl("good")
    for bad, reason in (
        (acl(""), "empty resource name"),
        (acl("c", kind=ResourceType.CLUSTER), CLUSTER_NAME),
        (acl("t", Operation.ANY), "Invalid operation ANY"),
        (acl("t", permission=PermissionType.ANY), "Invalid permissionType ANY"),
        (acl("t", kind=ResourceType.ANY), "Invalid resourceType ANY"),
        (acl("t", principal="alice"), "Could not parse principal from `alice`"),
    ):
        with pytest.raises(KafkaError, match=reason) as caught:
            admin.create_acls([bad, good])
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert admin.delete_acls([AclFilter()]) == [good]


def test_a_topic_that_may_not_be_described_is_not_said_to_be_missing(admin: Admin) -> None:
    admin.create_topics([NewTopic("hidden", 1, 1)])
    admin.create_acls([acl("hidden", Operation.DESCRIBE)])
    for patient in (True, False):
        with pytest.raises(AuthorizationError, match="hidden"):
            describe_until_refused(admin, patient=patient)


def describe_until_refused(admin: Admin, *, patient: bool) -> None:
    """ACLs take a moment to reach every broker."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        admin.describe_topics(["hidden"], patient=patient)


def test_a_denial_is_felt_by_a_producer_on_every_broker(
    served: ServedCluster, admin: Admin
) -> None:
    admin.create_topics([NewTopic("felt", 2, 1)])
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": served.bootstrap,
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

    def until(wanted: list[int]) -> float:
        began = time.monotonic()
        while outcomes() != wanted:
            assert time.monotonic() - began < 30
        return time.monotonic() - began

    assert outcomes() == [0, 0]
    admin.create_acls([acl("felt", Operation.WRITE)])
    until([DENIED, DENIED])
    admin.delete_acls([AclFilter(name="felt")])
    until([0, 0])


@pytest.mark.parametrize("incremental", [True, False])
def test_a_parked_fetch_ends_when_its_right_goes(
    served: ServedCluster, admin: Admin, incremental: bool
) -> None:
    topic = f"parked-{incremental}"
    admin.create_topics([NewTopic(topic, 1, 1)])
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": served.bootstrap,
            "group.id": topic,
            "fetch.wait.max.ms": 60_000,
            "socket.timeout.ms": 120_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert consumer.poll(1) is None
    began = time.monotonic()
    admin.create_acls([acl(topic)])
    message = consumer.poll(50)
    took = time.monotonic() - began
    admin.delete_acls([AclFilter(name=topic)])
    consumer.close()
    assert message is not None
    assert message.error().code() == DENIED
    assert took < 50


def test_rights_on_the_cluster_guard_the_acls(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 1, **PROPERTIES) as cluster, Admin(cluster.bootstrap) as admin:
        for call in (
            lambda: admin.describe_acls(),
            lambda: admin.create_acls([acl("t")]),
            lambda: admin.delete_acls([AclFilter()]),
        ):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    with ServedCluster(tmp_path, 1) as cluster, Admin(cluster.bootstrap) as admin:
        with pytest.raises(KafkaError, match="No Authorizer") as caught:
            admin.describe_acls()
        assert caught.value.code is ErrorCode.SECURITY_DISABLED
