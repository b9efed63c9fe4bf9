"""The SDK's share consumers while leaders that they read from are killed: no record is lost, and
none that was accepted is delivered again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from headwater import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer
from integration.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPIC = "work"
ROWS, PARTITIONS = 300, 3
WAIT_S = 90
BATCH = 10


def test_accepted_once_and_none_lost_when_leaders_are_killed(
    start_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = start_cluster(
        3,
        share_coordinator_state_topic_num_partitions="3",
        offsets_topic_num_partitions="3",
        group_share_min_record_lock_duration_ms="1000",
    )
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "5000"}
        admin.alter_configs("group", "crew", configs)
    with Producer(cluster.bootstrap) as producer:
        for number in range(ROWS):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    killed = cluster.leader_of(TOPIC, 0)
    accepted: Counter[int] = Counter()
    doubtful: set[int] = set()
    with ShareConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap,
        group_id="crew",
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        max_poll_records=BATCH,
    ) as consumer:
        deadline = time.monotonic() + WAIT_S
        is_killed = False
        while len(accepted.keys() | doubtful) < ROWS or doubtful - accepted.keys():
            assert time.monotonic() < deadline, f"{len(accepted)} accepted, in doubt: {doubtful}"
            polled = consumer.poll(timeout_ms=500)
            if not polled and len(accepted.keys() | doubtful) == ROWS:
                break  # what is in doubt was accepted: nobody gets it again
            if not is_killed and len(accepted) >= ROWS // 3 and polled:
                cluster.kill_broker(killed)
                is_killed = True
            for rows in polled.values():
                for row in rows:
                    assert int(row.value or b"") not in accepted, f"{row.value!r} comes again"
                    consumer.acknowledge(row, AcknowledgeType.ACCEPT)
            outcome = consumer.commit()
            for partition, rows in polled.items():
                values = [int(row.value or b"") for row in rows]
                if outcome.get(partition) is None:
                    accepted.update(values)
                else:
                    doubtful.update(values)
    assert is_killed
    assert set(accepted) | doubtful == set(range(ROWS))
    assert set(accepted.values()) == {1}
