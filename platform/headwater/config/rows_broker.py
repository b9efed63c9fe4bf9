"""The broker's own keys (Kafka 4.3 "Broker Configs"; ZooKeeper keys as in Kafka 3.9)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from headwater.config.connection_limits import connection_overrides
from headwater.config.row import LONG_MAX, ConfigKey, Kind, Scope, Value

HOUR_MS = 3600 * 1000
MINUTE_MS = 60 * 1000

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""replica.selector.class by Kafka's own class names."""

DEPRECATED_UNITS: dict[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
}
"""Coarser twins in order of precedence (B1-190: ms, minutes, hours)."""


def _row(
    name: str,
    kind: Kind,
    default: Value,
    unit: str,
    doc: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    sensitive: bool = False,
    dynamic: bool = False,
    check_items: Callable[[Iterable[str]], object] | None = None,
) -> ConfigKey:
    return ConfigKey(
        name, kind, default, Scope.BROKER, unit, doc, minimum, maximum, choices,
        is_sensitive=sensitive, is_dynamic=dynamic, check_items=check_items,
    )  # fmt: skip


_IDENTITY = (
    _row("broker.id", Kind.INT, -1, "", "The broker's number, unique in the cluster.", minimum=-1),
    _row("broker.rack", Kind.STRING, None, "",
         "Rack of this broker, for replica placement and near reads."),
    _row("zookeeper.connect", Kind.STRING, "127.0.0.1:2181", "",
         "host:port list of the ensemble, with an optional /chroot at its end."),
    _row("zookeeper.session.timeout.ms", Kind.INT, 18_000, "ms",
         "A broker whose host is lost is seen as dead after this time.", minimum=1),
    _row("zookeeper.connection.timeout.ms", Kind.INT, 18_000, "ms",
         "How long the first connection may take.", minimum=1),
    _row("listeners", Kind.LIST, ("PLAINTEXT://127.0.0.1:9092",), "",
         "NAME://host:port to listen on, one per listener."),
    _row("advertised.listeners", Kind.LIST, None, "",
         "NAME://host:port that clients are told; unset: listeners."),
    _row("listener.security.protocol.map", Kind.LIST,
         ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
         "",
         "Security protocol of each listener name; not used while all listeners are PLAINTEXT."),
    _row("inter.broker.listener.name", Kind.STRING, None, "",
         "The listener that replication uses; unset: the first one."),
    _row("control.listener", Kind.STRING, "127.0.0.1:9192", "",
         "host:port of the gRPC control plane."),
    _row("control.advertised.listener", Kind.STRING, None, "",
         "host:port of the control plane that other brokers are told; unset: control.listener."),
    _row("status.listener", Kind.STRING, None, "",
         "host:port of the status page and metrics; unset: none."),
)  # fmt: skip

_LOGS = (
    _row("log.dirs", Kind.LIST, None, "", "Data folders; unset: log.dir."),
    _row("log.dir", Kind.STRING, "/tmp/headwater-logs", "", "The data folder."),
    _row("log.retention.minutes", Kind.INT, None, "minutes", "Coarser twin of log.retention.ms.",
         minimum=-1),
    _row("log.retention.hours", Kind.INT, 168, "hours", "Coarser twin of log.retention.ms.",
         minimum=-1),
    _row("log.roll.hours", Kind.INT, 168, "hours", "Coarser twin of log.roll.ms.", minimum=1),
    _row("log.roll.jitter.hours", Kind.INT, 0, "hours", "Coarser twin of log.roll.jitter.ms.",
         minimum=0),
    _row("log.retention.check.interval.ms", Kind.LONG, 300_000, "ms",
         "How often retention is checked.", minimum=1),
    _row("log.initial.task.delay.ms", Kind.LONG, 30_000, "ms",
         "First run of retention, flushes, checkpoints; earlier where their interval is shorter.",
         minimum=0),
    _row("log.flush.scheduler.interval.ms", Kind.LONG, 1_000, "ms",
         "How often flush.ms is checked (Kafka: never by default).", minimum=1),
    _row("log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000, "ms",
         "How often recovery points are written.", minimum=1),
    _row("log.flush.start.offset.checkpoint.interval.ms", Kind.INT, 60_000, "ms",
         "How often log start offsets are written.", minimum=1),
    _row("replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5_000, "ms",
         "How often high watermarks are written.", minimum=1),
    _row("producer.id.expiration.ms", Kind.INT, 86_400_000, "ms",
         "An idempotent producer's state goes when it has not written for this time.", minimum=1,
         dynamic=True),
    _row("producer.id.expiration.check.interval.ms", Kind.INT, 600_000, "ms",
         "How often expired producers are looked for.", minimum=1),
    _row("headwater.tables.uri", Kind.STRING, None, "",
         "Folder or URI below which Delta tables are, as TOPIC-ID; unset: log.dir's tables."),
)  # fmt: skip

_CLEANER = (
    _row("log.cleaner.enable", Kind.BOOLEAN, True, "",
         "Compact logs with cleanup.policy=compact; without it they only grow."),
    _row("log.cleaner.backoff.ms", Kind.LONG, 15_000, "ms",
         "How often logs are looked at for compaction.", minimum=1, dynamic=True),
    _row("log.cleaner.threads", Kind.INT, 1, "",
         "Logs compacted at the same time, each by a niced process of its own.", minimum=1,
         dynamic=True),
    _row("log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, "bytes",
         "Memory for keys of all compactions at a time; a log with more keys takes several passes.",
         minimum=1 << 20, dynamic=True),
    _row("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max, "bytes/s",
         "Bytes that one compaction reads and writes per second at most.", minimum=1,
         dynamic=True),
)  # fmt: skip

_TOPICS = (
    _row("num.partitions", Kind.INT, 1, "", "Partitions of an automatically created topic.",
         minimum=1, dynamic=True),
    _row("default.replication.factor", Kind.INT, 1, "",
         "Replicas of an automatically created topic.", minimum=1, dynamic=True),
    _row("auto.create.topics.enable", Kind.BOOLEAN, True, "",
         "Create a topic when a client first asks for it."),
    _row("delete.topic.enable", Kind.BOOLEAN, True, "", "Allow topics to be deleted."),
    _row("auto.leader.rebalance.enable", Kind.BOOLEAN, True, "",
         "Elect preferred leaders: at each check, and when a broker is back and in sync again."),
    _row("leader.imbalance.check.interval.seconds", Kind.LONG, 300, "s",
         "How often leadership is balanced.", minimum=1),
    _row("leader.imbalance.per.broker.percentage", Kind.INT, 10, "%",
         "Share of non-preferred leaders per broker that is tolerated.", minimum=0, dynamic=True),
    _row("controlled.shutdown.enable", Kind.BOOLEAN, True, "",
         "Hand leadership over before stopping."),
    _row("controlled.shutdown.max.retries", Kind.INT, 3, "", "Tries of that handing over.",
         minimum=0),
)  # fmt: skip

_QUOTAS = (
    _row("leader.replication.throttled.rate", Kind.LONG, LONG_MAX, "bytes",
         "Per second: what leaders give to listed followers that are not in sync (KIP-73).",
         minimum=0, dynamic=True),
    _row("follower.replication.throttled.rate", Kind.LONG, LONG_MAX, "bytes",
         "Per second: what listed followers here fetch while they are behind (KIP-73).",
         minimum=0, dynamic=True),
    _row("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, LONG_MAX, "bytes",
         "Replicas that move between data folders are copied no faster.", minimum=0, dynamic=True),
    _row("replication.quota.window.num", Kind.INT, 11, "",
         "Windows over which replication rates are measured.", minimum=1),
    _row("replication.quota.window.size.seconds", Kind.INT, 1, "s",
         "Length of such a window.", minimum=1),
    _row("alter.log.dirs.replication.quota.window.num", Kind.INT, 11, "",
         "Windows over which the rate of copies between data folders is measured.", minimum=1),
    _row("alter.log.dirs.replication.quota.window.size.seconds", Kind.INT, 1, "s",
         "Length of such a window.", minimum=1),
)  # fmt: skip

_REPLICATION = (
    _row("replica.lag.time.max.ms", Kind.LONG, 30_000, "ms",
         "A follower that was not caught up for this time leaves the ISR.", minimum=1),
    _row("replica.fetch.max.bytes", Kind.INT, 1 << 20, "bytes",
         "Bytes per partition in one follower fetch.", minimum=0),
    _row("replica.fetch.response.max.bytes", Kind.INT, 10 << 20, "bytes",
         "Bytes of one whole follower fetch.", minimum=0),
    _row("replica.fetch.wait.max.ms", Kind.INT, 500, "ms",
         "How long a follower's fetch may be parked.", minimum=0),
    _row("replica.fetch.min.bytes", Kind.INT, 1, "bytes",
         "A follower's fetch is parked until so much is there.", minimum=0),
    _row("replica.fetch.backoff.ms", Kind.INT, 1_000, "ms",
         "Pause after a failed follower fetch.", minimum=0),
    _row("replica.socket.timeout.ms", Kind.INT, 30_000, "ms",
         "How long a follower waits for a reply at most; it waits no more than 10 s beyond "
         "replica.fetch.wait.max.ms in any case.", minimum=1),
    _row("replica.selector.class", Kind.STRING, LEADER_SELECTOR, "",
         "Whom consumers read from: RackAwareReplicaSelector sends those that tell their rack to "
         "an in-sync follower there.", choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR)),
)  # fmt: skip

_GROUPS = (
    _row("offsets.topic.num.partitions", Kind.INT, 50, "",
         "Partitions of __consumer_offsets.", minimum=1),
    _row("offsets.topic.replication.factor", Kind.INT, 3, "",
         "Replicas of __consumer_offsets, which is made once so many brokers live (KIP-115).",
         minimum=1),
    _row("offsets.topic.segment.bytes", Kind.INT, 100 << 20, "bytes",
         "Segment size of __consumer_offsets.", minimum=1),
    _row("offsets.retention.minutes", Kind.INT, 10_080, "minutes",
         "Committed offsets of an empty group stay this long.", minimum=1),
    _row("offsets.retention.check.interval.ms", Kind.LONG, 600_000, "ms",
         "How often old offsets are looked for.", minimum=1),
    _row("offset.metadata.max.bytes", Kind.INT, 4_096, "bytes",
         "Largest metadata of a committed offset.", minimum=0),
    _row("group.min.session.timeout.ms", Kind.INT, 6_000, "ms",
         "Shortest session timeout a member may ask for.", minimum=0),
    _row("group.max.session.timeout.ms", Kind.INT, 1_800_000, "ms",
         "Longest session timeout a member may ask for.", minimum=0),
    _row("group.initial.rebalance.delay.ms", Kind.INT, 3_000, "ms",
         "How long the first rebalance of an empty group waits for more members.", minimum=0),
    _row("group.max.size", Kind.INT, 2**31 - 1, "members", "Largest group.", minimum=1),
    _row("transaction.state.log.num.partitions", Kind.INT, 50, "",
         "Partitions of __transaction_state.", minimum=1),
    _row("transaction.state.log.replication.factor", Kind.INT, 3, "",
         "Replicas of __transaction_state.", minimum=1),
    _row("transaction.state.log.min.isr", Kind.INT, 2, "",
         "In-sync replicas a write to __transaction_state needs.", minimum=1),
    _row("transaction.max.timeout.ms", Kind.INT, 900_000, "ms",
         "Longest transaction timeout a producer may ask for.", minimum=1),
    _row("transactional.id.expiration.ms", Kind.INT, 604_800_000, "ms",
         "An unused transactional id is forgotten after this time.", minimum=1),
    _row("transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10_000, "ms",
         "How often timed-out transactions are looked for.", minimum=1),
)  # fmt: skip

_NETWORK = (
    _row("socket.request.max.bytes", Kind.INT, 100 << 20, "bytes",
         "Largest request; checked before it is buffered.", minimum=1),
    _row("socket.send.buffer.bytes", Kind.INT, -1, "bytes",
         "SO_SNDBUF; -1 leaves it to the system, which adapts it (Kafka: 102400).", minimum=-1),
    _row("socket.receive.buffer.bytes", Kind.INT, -1, "bytes",
         "SO_RCVBUF; -1 leaves it to the system, which adapts it (Kafka: 102400).", minimum=-1),
    _row("max.connections", Kind.INT, 2**31 - 1, "", "Connections of the whole broker; more wait.",
         minimum=0, dynamic=True),
    _row("max.connections.per.ip", Kind.INT, 2**31 - 1, "", "Connections per client address.",
         minimum=0, dynamic=True),
    _row("max.connections.per.ip.overrides", Kind.LIST, (), "",
         "address:count, where an address may have another number of connections.",
         dynamic=True, check_items=connection_overrides),
    _row("max.connection.creation.rate", Kind.INT, 2**31 - 1, "",
         "New connections per second of the whole broker; more wait (KIP-612).", minimum=1,
         dynamic=True),
    _row("quota.window.num", Kind.INT, 11, "",
         "Windows over which client quotas are measured.", minimum=1),
    _row("quota.window.size.seconds", Kind.INT, 1, "s", "Length of such a window.", minimum=1),
    _row("connections.max.idle.ms", Kind.LONG, 600_000, "ms",
         "An idle connection is closed after this time; -1: never.", minimum=-1),
    _row("fetch.max.bytes", Kind.INT, 55 << 20, "bytes", "Bytes of one fetch reply.",
         minimum=1024),
    _row("max.incremental.fetch.session.cache.slots", Kind.INT, 1_000, "",
         "Fetch sessions kept.", minimum=0),
    _row("queued.max.requests", Kind.INT, 500, "",
         "Requests in flight per connection before it is no longer read.", minimum=1),
    _row("request.timeout.ms", Kind.INT, 30_000, "ms",
         "How long this broker waits for another one.", minimum=1),
)  # fmt: skip

BROKER_ROWS = (
    *_IDENTITY,
    *_LOGS,
    *_CLEANER,
    *_TOPICS,
    *_REPLICATION,
    *_QUOTAS,
    *_GROUPS,
    *_NETWORK,
)
