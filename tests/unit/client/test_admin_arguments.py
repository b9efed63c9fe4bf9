"""`Admin` checks its arguments before it sends a request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, NewTopic, TopicPartition, UsageError
from unit.client.served_broker import ServedBroker

TP = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(Path(tmp_path_factory.mktemp("admin"))) as broker:
        broker.do(lambda b: b.create_topic("t"))
        yield broker


WRONG: list[tuple[Any, str]] = [
    (lambda a: a.create_topics("t"), "topics is 't': give a list of NewTopic"),
    (lambda a: a.create_topics(NewTopic("t")), "give a list of NewTopic"),
    (lambda a: a.create_topics([3]), "3 is of type int"),
    (lambda a: a.create_topics([NewTopic("")]), "a name is empty"),
    (lambda a: a.create_topics([NewTopic("t", 0)]), "num_partitions of t is 0"),
    (lambda a: a.create_topics([NewTopic("t", "1")]), "num_partitions of t is '1'"),
    (lambda a: a.create_topics([NewTopic("t", 1, -2)]), "replication_factor of t is -2"),
    (lambda a: a.create_topics([NewTopic("t", 1, 1, {"retention.ms": 5})]), "retention.ms is 5"),
    (lambda a: a.create_topics([NewTopic("t", assignments={0: 1})]), "replicas of t-0 is 1"),
    (lambda a: a.create_topics(["t"], timeout_ms=-1), "timeout_ms is -1"),
    (lambda a: a.delete_topics("t"), "topics is 't': give a list of names"),
    (lambda a: a.delete_topics([b"t"]), "of type bytes"),
    (lambda a: a.delete_topics([""]), "a name is empty"),
    (lambda a: a.describe_topics("t"), "give a list of names"),
    (lambda a: a.create_partitions({"t": 0}), "partitions of t is 0"),
    (lambda a: a.create_partitions(["t"]), "give a dict"),
    (lambda a: a.create_partitions({"t": 2}, assignments={"t": 1}), "assignments of t is 1"),
    (lambda a: a.describe_configs("topics", "t"), "resource_type 'topics': give one of"),
    (lambda a: a.alter_configs("topic", "t", {"retention.ms": 5}), "retention.ms is 5"),
    (lambda a: a.alter_client_quotas({"user": "u"}, {"producer_byte_rate": "1"}), "is '1'"),
    (lambda a: a.list_offsets({TP: "latest"}), "timestamp of t-0 is 'latest'"),
    (lambda a: a.list_offsets({TP: -9}), "timestamp of t-0 is -9"),
    (lambda a: a.list_offsets({TP: 0}, isolation_level="x"), "isolation_level 'x'"),
    (lambda a: a.delete_records({TP: -2}), "offset of t-0 is -2"),
    (lambda a: a.delete_records({"t": 1}), "is no partition"),
    (lambda a: a.describe_groups("g"), "groups is 'g': give a list of names"),
    (lambda a: a.delete_groups(""), "give a list of names"),
    (lambda a: a.list_group_offsets(""), "a name is empty"),
    (lambda a: a.alter_group_offsets("g", {TP: -1}), "it is negative"),
    (lambda a: a.delete_group_offsets("g", TP), "is one partition"),
    (lambda a: a.elect_leaders("fair"), "election_type 'fair': give one of 'preferred'"),
    (lambda a: a.alter_partition_reassignments({TP: "1,2"}), "give a list of broker ids"),
    (lambda a: a.alter_partition_reassignments({TP: [-1]}), "replicas of t-0 is -1"),
    (lambda a: a.describe_log_dirs("1"), "give a list of broker ids"),
    (lambda a: a.alter_replica_log_dirs("1", {TP: "/d"}), "broker is '1'"),
    (lambda a: a.alter_replica_log_dirs(1, {TP: 5}), "log dir: 5 is of type int"),
    (lambda a: a.describe_producers("t"), "give a list of TopicPartition"),
    (lambda a: a.list_transactions(states=["Sleeping"]), "states 'Sleeping': give one of 'Empty'"),
    (lambda a: a.list_transactions(states="Ongoing"), "states is 'Ongoing': give a list"),
    (lambda a: a.list_transactions(producer_ids=[-1]), "producer_ids is -1"),
    (lambda a: a.list_transactions(producer_ids="7"), "give a list of producer ids"),
    (lambda a: a.list_transactions(older_than_ms=-1), "older_than_ms is -1"),
    (lambda a: a.list_transactions(transactional_id_pattern=""), "a name is empty"),
    (lambda a: a.describe_transactions("id"), "give a list of names"),
    (lambda a: a.transaction_blockers("t"), "topics is 't': give a list of names"),
    (lambda a: a.find_hanging_transactions(partitions=TP), "is one partition"),
    (lambda a: a.find_hanging_transactions(broker=-1), "broker is -1"),
    (lambda a: a.find_hanging_transactions(max_transaction_timeout_ms=-1), "timeout_ms is -1"),
    (lambda a: a.abort_transaction(TP), "which transaction?"),
    (lambda a: a.abort_transaction(TP, first_offset=1, producer=(1, 2)), "which transaction?"),
    (lambda a: a.abort_transaction(TP, first_offset=-1), "first_offset is -1"),
    (lambda a: a.abort_transaction("t", first_offset=0), "is no partition"),
    (
        lambda a: a.abort_transaction(TP, producer=(1, 40_000)),
        "producer epoch of producer is 40000",
    ),
    (lambda a: a.abort_transaction(TP, producer=7), "give ProducerIdAndEpoch"),
    (lambda a: a.abort_transaction(TP, first_offset=0, coordinator_epoch=-2), "epoch is -2"),
    (lambda a: a.fence_producers("id"), "give a list of names"),
    (lambda a: a.end_transaction("", (1, 2), commit=True), "a name is empty"),
    (lambda a: a.end_transaction("id", (-1, 2), commit=True), "producer id of producer is -1"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_named_and_nothing_is_sent(
    served: ServedBroker, call: Any, message: str
) -> None:
    with Admin(served.bootstrap) as admin:
        served.close_port()  # whoever asked would wait
        try:
            with pytest.raises(UsageError, match=message):
                call(admin)
        finally:
            served.open_port()
