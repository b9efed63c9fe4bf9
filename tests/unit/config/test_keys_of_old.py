"""The broker keys of Kafka 0.8.2 (P24 of the list): those that count here, with their defaults,
those that are accepted without effect, and those that are refused.

docs/spec-request-path.md says why.
"""

from __future__ import annotations

import pytest

from headwater.config.keys import BROKER_KEYS, broker_key
from headwater.errors import UsageError

NEVER = 2**63 - 1
SAME = {  # name and default as in 0.8.2
    "queued.max.requests": 500,
    "socket.request.max.bytes": 104_857_600,
    "max.connections.per.ip": 2**31 - 1,
    "max.connections.per.ip.overrides": (),
    "connections.max.idle.ms": 600_000,
    "controlled.shutdown.enable": True,
    "controlled.shutdown.max.retries": 3,
    "log.retention.minutes": None,
    "log.retention.hours": 168,
    "log.retention.ms": 168 * 3_600_000,
    "log.retention.bytes": -1,
    "log.retention.check.interval.ms": 300_000,
    "log.flush.interval.messages": NEVER,
    "log.flush.interval.ms": NEVER,
    "log.flush.offset.checkpoint.interval.ms": 60_000,
    "log.initial.task.delay.ms": 30_000,
    "log.index.interval.bytes": 4096,
    "log.index.size.max.bytes": 10 * 2**20,
    "log.segment.bytes": 2**30,
    "log.roll.hours": 168,
    "log.roll.ms": 168 * 3_600_000,
    "log.roll.jitter.ms": 0,
    "log.cleaner.threads": 1,
    "log.cleaner.backoff.ms": 15_000,
    "log.cleaner.min.cleanable.ratio": 0.5,
    "log.cleaner.delete.retention.ms": 86_400_000,
    "log.segment.delete.delay.ms": 60_000,
    "log.cleanup.policy": ("delete",),
    "replica.high.watermark.checkpoint.interval.ms": 5000,
    "replica.fetch.max.bytes": 2**20,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.min.bytes": 1,
    "replica.socket.timeout.ms": 30_000,
    "min.insync.replicas": 1,
    "default.replication.factor": 1,
    "num.partitions": 1,
    "auto.create.topics.enable": True,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 100 * 2**20,
    "offsets.retention.check.interval.ms": 600_000,
    "offset.metadata.max.bytes": 4096,
}
OTHER_DEFAULT = {  # today's Kafka's, or ours where the page says so
    "broker.id": -1,
    "controlled.shutdown.retry.backoff.ms": 200,
    "socket.send.buffer.bytes": -1,
    "socket.receive.buffer.bytes": -1,
    "zookeeper.session.timeout.ms": 18_000,
    "zookeeper.connection.timeout.ms": 18_000,
    "log.flush.scheduler.interval.ms": 1000,
    "log.cleaner.enable": True,
    "log.cleaner.dedupe.buffer.size": 128 * 2**20,
    "message.max.bytes": 1_048_588,
    "replica.lag.time.max.ms": 30_000,
    "unclean.leader.election.enable": False,
    "offsets.retention.minutes": 10_080,
}
WITHOUT_EFFECT = [
    "num.network.threads",
    "num.io.threads",
    "background.threads",
    "controller.socket.timeout.ms",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "replica.socket.receive.buffer.bytes",
    "fetch.purgatory.purge.interval.requests",
    "producer.purgatory.purge.interval.requests",
    "offsets.topic.compression.codec",
    "offsets.load.buffer.size",
    "offsets.commit.timeout.ms",
]
NONE_TODAY = [
    "port",
    "host.name",
    "advertised.host.name",
    "advertised.port",
    "replica.lag.max.messages",
    "offsets.storage",
    "offsets.commit.required.acks",
    "request.required.acks",
]


@pytest.mark.parametrize(("name", "default"), [*SAME.items(), *OTHER_DEFAULT.items()])
def test_a_key_of_old_has_this_default(name: str, default: object) -> None:
    assert broker_key(name).default == default
    assert broker_key(name).doc


@pytest.mark.parametrize("name", NONE_TODAY)
def test_a_key_that_kafka_has_no_more_is_refused_by_name(name: str) -> None:
    assert name not in BROKER_KEYS
    with pytest.raises(UsageError, match=name):
        broker_key(name)


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_key_that_kafka_still_has_is_accepted_and_says_that_it_has_no_effect(name: str) -> None:
    row = broker_key(name)
    assert not row.has_effect
    assert row.doc.startswith("No effect. ")
