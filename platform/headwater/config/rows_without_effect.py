"""Broker keys of Kafka 4.3 that Headwater accepts, stores and shows, and that have no effect.

Kafka's own properties files and tools use them. Keys that decide who may do what, that name a Java
class, or that make a process a KRaft controller are not among them: to accept these and do nothing
would mislead, so they are served (`rows_security`) or stay refused.
"""

from __future__ import annotations

from headwater.config.row import INT_MAX, LONG_MAX, ConfigKey, Kind, Scope, Value

_Row = tuple[str, Kind, Value, int | None, bool]


def _static(name: str, kind: Kind, default: Value, minimum: int | None = None) -> _Row:
    return name, kind, default, minimum, False


def _dynamic(name: str, kind: Kind, default: Value, minimum: int | None = None) -> _Row:
    return name, kind, default, minimum, True


def _rows(reason: str, *keys: _Row) -> tuple[ConfigKey, ...]:
    return tuple(
        ConfigKey(
            name, kind, default, Scope.BROKER, "", f"No effect. {reason}", minimum,
            is_dynamic=is_dynamic, has_effect=False,
        )
        for name, kind, default, minimum, is_dynamic in keys
    )  # fmt: skip


_THREADS = _rows(
    "Headwater's broker runs on one event loop; more brokers use more cores.",
    _dynamic("background.threads", Kind.INT, 10, 1),
    _static("group.coordinator.background.threads", Kind.INT, 2, 1),
    _static("group.coordinator.threads", Kind.INT, 4, 1),
    _dynamic("num.io.threads", Kind.INT, 8, 1),
    _dynamic("num.network.threads", Kind.INT, 3, 1),
    _dynamic("num.recovery.threads.per.data.dir", Kind.INT, 2, 1),
    _static("num.replica.alter.log.dirs.threads", Kind.INT, None),
    _dynamic("num.replica.fetchers", Kind.INT, 1, 1),
    _dynamic("remote.log.manager.copier.thread.pool.size", Kind.INT, 10, 1),
    _dynamic("remote.log.manager.expiration.thread.pool.size", Kind.INT, 10, 1),
    _dynamic("remote.log.manager.follower.thread.pool.size", Kind.INT, 2, 1),
    _static("remote.log.manager.thread.pool.size", Kind.INT, 2, 1),
    _dynamic("remote.log.reader.threads", Kind.INT, 10, 1),
    _static("share.coordinator.threads", Kind.INT, 1, 1),
)

_BUFFERS = _rows(
    "Headwater sizes this by itself.",
    _static("group.coordinator.append.linger.ms", Kind.INT, -1, -1),
    _dynamic("group.coordinator.cached.buffer.max.bytes", Kind.INT, 1048588, 524288),
    _dynamic("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9),
    _dynamic("log.cleaner.io.buffer.size", Kind.INT, 524288, 0),
    _static("max.request.partition.size.limit", Kind.INT, 2000, 1),
    _static("offsets.load.buffer.size", Kind.INT, 5242880, 1),
    _static("queued.max.request.bytes", Kind.LONG, -1),
    _dynamic("remote.log.index.file.cache.total.size.bytes", Kind.LONG, 1073741824, 1),
    _static("remote.log.metadata.custom.metadata.max.bytes", Kind.INT, 128, 0),
    _static("remote.log.reader.max.pending.tasks", Kind.INT, 100, 1),
    _static("replica.socket.receive.buffer.bytes", Kind.INT, 65536),
    _static("socket.listen.backlog.size", Kind.INT, 50, 1),
    _static("transaction.state.log.load.buffer.size", Kind.INT, 5242880, 1),
)

_COMPRESSION = _rows(
    "Coordinators write their batches without compression.",
    _static("offsets.topic.compression.codec", Kind.INT, 0),
    _static("share.coordinator.state.topic.compression.codec", Kind.INT, 0),
)

_PURGATORY = _rows(
    "Completed requests leave Headwater's purgatory by themselves.",
    _static("delete.records.purgatory.purge.interval.requests", Kind.INT, 1),
    _static("fetch.purgatory.purge.interval.requests", Kind.INT, 1000),
    _static("producer.purgatory.purge.interval.requests", Kind.INT, 1000),
    _static("share.fetch.purgatory.purge.interval.requests", Kind.INT, 1000),
)

_METRICS = _rows(
    "Metrics are served at status.listener, see docs/metrics.md.",
    _static("kafka.metrics.polling.interval.secs", Kind.INT, 10, 1),
    _static("kafka.metrics.reporters", Kind.LIST, ()),
    _dynamic("metric.reporters", Kind.LIST, ()),
    _static("metrics.num.samples", Kind.INT, 2, 1),
    _static("metrics.recording.level", Kind.STRING, "INFO"),
    _static("metrics.sample.window.ms", Kind.LONG, 30000, 1),
    _static("telemetry.max.bytes", Kind.INT, 1048576, 1),
)

_KERBEROS = _rows(
    "The Kerberos library renews tickets.",
    _dynamic("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit"),
    _dynamic("sasl.kerberos.min.time.before.relogin", Kind.LONG, 60000),
    _dynamic("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05),
    _dynamic("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8),
)

_TIMES = _rows(
    "Headwater has its own time limits here.",
    _static("add.partitions.to.txn.retry.backoff.max.ms", Kind.INT, 100, 0),
    _static("add.partitions.to.txn.retry.backoff.ms", Kind.INT, 20, 1),
    _static("controller.socket.timeout.ms", Kind.INT, 30000),
    _static("log.dir.failure.timeout.ms", Kind.LONG, 30000, 1),
    _static("offsets.commit.timeout.ms", Kind.INT, 5000, 1),
    _dynamic("remote.fetch.max.wait.ms", Kind.INT, 500, 1),
    _dynamic("remote.list.offsets.request.timeout.ms", Kind.LONG, 30000, 1),
    _static("socket.connection.setup.timeout.max.ms", Kind.LONG, 30000),
    _static("socket.connection.setup.timeout.ms", Kind.LONG, 10000),
)

_KRAFT = _rows(
    "A broker's ZooKeeper session does this work.",
    _static("broker.heartbeat.interval.ms", Kind.INT, 2000),
    _static("broker.session.timeout.ms", Kind.INT, 9000),
    _static("initial.broker.registration.timeout.ms", Kind.INT, 60000),
)

_TIERING = _rows(
    "Headwater tiers into Delta tables, by jobs outside of the broker.",
    _dynamic("follower.fetch.last.tiered.offset.enable", Kind.BOOLEAN, False),
    _dynamic("remote.log.manager.copy.max.bytes.per.second", Kind.LONG, LONG_MAX, 1),
    _static("remote.log.manager.copy.quota.window.num", Kind.INT, 11, 1),
    _static("remote.log.manager.copy.quota.window.size.seconds", Kind.INT, 1, 1),
    _dynamic("remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, LONG_MAX, 1),
    _static("remote.log.manager.fetch.quota.window.num", Kind.INT, 11, 1),
    _static("remote.log.manager.fetch.quota.window.size.seconds", Kind.INT, 1, 1),
    _static("remote.log.manager.task.interval.ms", Kind.LONG, 30000, 1),
)

_TRANSACTIONS = _rows(
    "Headwater aborts a transaction when its timeout ends, and always verifies partitions.",
    _static("transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10000, 1),
    _dynamic("transaction.partition.verification.enable", Kind.BOOLEAN, True),
)

_GROUPS = _rows(
    "Headwater has no streams groups (KIP-1071).",
    _dynamic("group.streams.assignment.interval.ms", Kind.INT, 1000, 0),
    _static("group.streams.heartbeat.interval.ms", Kind.INT, 5000, 1),
    _static("group.streams.initial.rebalance.delay.ms", Kind.INT, 3000, 0),
    _static("group.streams.max.assignment.interval.ms", Kind.INT, 15000, 0),
    _static("group.streams.max.heartbeat.interval.ms", Kind.INT, 15000, 1),
    _static("group.streams.max.session.timeout.ms", Kind.INT, 60000, 1),
    _static("group.streams.max.size", Kind.INT, INT_MAX, 1),
    _static("group.streams.max.standby.replicas", Kind.INT, 2, 0),
    _static("group.streams.min.assignment.interval.ms", Kind.INT, 0, 0),
    _static("group.streams.min.heartbeat.interval.ms", Kind.INT, 5000, 1),
    _static("group.streams.min.session.timeout.ms", Kind.INT, 45000, 1),
    _static("group.streams.num.standby.replicas", Kind.INT, 0, 0),
    _static("group.streams.session.timeout.ms", Kind.INT, 45000, 1),
)

_SHARE = _rows(
    "Headwater sizes these by itself.",
    _static("share.coordinator.append.linger.ms", Kind.INT, -1, -1),
    _dynamic("share.coordinator.cached.buffer.max.bytes", Kind.INT, 1048588, 524288),
    _static("share.coordinator.load.buffer.size", Kind.INT, 5242880, 1),
)

ROWS_WITHOUT_EFFECT = (
    *_THREADS,
    *_BUFFERS,
    *_COMPRESSION,
    *_PURGATORY,
    *_METRICS,
    *_KERBEROS,
    *_TIMES,
    *_KRAFT,
    *_TIERING,
    *_TRANSACTIONS,
    *_GROUPS,
    *_SHARE,
)
