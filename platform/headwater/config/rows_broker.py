"""The broker keys (Kafka 4.3 "Broker Configs"; ZooKeeper keys as in Kafka 3.9).

`headwater_broker.app.dynamic_config` applies changes of dynamic ones while the broker runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from headwater.config.connection_overrides import connection_overrides
from headwater.config.log_files import log_files
from headwater.config.row import LONG_MAX, ConfigKey, Kind, Scope, Value

HOUR_MS = 3600 * 1000
MINUTE_MS = 60 * 1000

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Values of replica.selector.class: Kafka's class names."""

DEPRECATED_UNITS: dict[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
}
"""The same settings in larger units, in the order of precedence (B1-190: ms, minutes, hours)."""


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
    _row("broker.id", Kind.INT, -1, "", "The broker's id, unique in the cluster.", minimum=-1),
    _row("broker.rack", Kind.STRING, None, "",
         "Rack of this broker, for the placement of replicas and for reads from the closest one."),
    _row("zookeeper.connect", Kind.STRING, "127.0.0.1:2181", "",
         "host:port list of the ZooKeeper ensemble, with an optional /chroot at its end."),
    _row("zookeeper.session.timeout.ms", Kind.INT, 18_000, "ms",
         "A broker whose host fails counts as dead after this time.", minimum=1),
    _row("zookeeper.connection.timeout.ms", Kind.INT, 18_000, "ms",
         "Timeout of the first connection to ZooKeeper.", minimum=1),
    _row("zookeeper.set.acl", Kind.BOOLEAN, False, "",
         "Whether nodes in ZooKeeper belong to the brokers' credentials; others may read all but "
         "secrets."),
    _row("headwater.zookeeper.digest", Kind.STRING, None, "",
         "user:password of the brokers in ZooKeeper (digest), the same on all; unset: none.",
         sensitive=True),
    _row("zookeeper.ssl.client.enable", Kind.BOOLEAN, False, "",
         "Whether connections to ZooKeeper use TLS."),
    _row("zookeeper.ssl.keystore.location", Kind.STRING, None, "",
         "File with this broker's key and certificate chain for ZooKeeper."),
    _row("zookeeper.ssl.keystore.password", Kind.STRING, None, "",
         "Password of that PKCS12 key store.", sensitive=True),
    _row("zookeeper.ssl.keystore.type", Kind.STRING, None, "",
         "Format of that key store; unset: as its content shows.", choices=("PEM", "PKCS12")),
    _row("zookeeper.ssl.truststore.location", Kind.STRING, None, "",
         "File with the certificates of ZooKeeper's authorities."),
    _row("zookeeper.ssl.truststore.password", Kind.STRING, None, "",
         "Password of that PKCS12 trust store.", sensitive=True),
    _row("zookeeper.ssl.truststore.type", Kind.STRING, None, "",
         "Format of that trust store; unset: as its content shows.", choices=("PEM", "PKCS12")),
    _row("zookeeper.ssl.endpoint.identification.algorithm", Kind.STRING, "https", "",
         "Whether the broker checks the host name of ZooKeeper's servers; empty: not.",
         choices=("https", "")),
    _row("listeners", Kind.LIST, ("PLAINTEXT://127.0.0.1:9092",), "",
         "Addresses to listen on, NAME://host:port for each listener."),
    _row("advertised.listeners", Kind.LIST, None, "",
         "Addresses for clients, NAME://host:port for each listener; unset: listeners."),
    _row("listener.security.protocol.map", Kind.LIST,
         ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
         "",
         "Security protocol of each listener name."),
    _row("inter.broker.listener.name", Kind.STRING, None, "",
         "The listener for connections between brokers; unset: the first one."),
    _row("control.listener", Kind.STRING, "127.0.0.1:9192", "",
         "host:port of the control plane (gRPC)."),
    _row("control.advertised.listener", Kind.STRING, None, "",
         "host:port of the control plane for other brokers; unset: control.listener."),
    _row("status.listener", Kind.STRING, None, "",
         "host:port of the status page and the metrics; unset: there are none."),
    _row("status.allowed.hosts", Kind.LIST, (), "",
         "Host names by which browsers and scrapers reach the status page, beside those of "
         "listeners."),
    _row("status.bearer.token.file", Kind.STRING, None, "",
         "File with the token that requests of the status page and the metrics must show."),
)  # fmt: skip

_LOGS = (
    _row("log.dirs", Kind.LIST, None, "", "Data folders of the logs; unset: log.dir."),
    _row("log.dir", Kind.STRING, "/tmp/headwater-logs", "", "The data folder of the logs."),
    _row("log.retention.minutes", Kind.INT, None, "minutes", "log.retention.ms in minutes.",
         minimum=-1),
    _row("log.retention.hours", Kind.INT, 168, "hours", "log.retention.ms in hours.",
         minimum=-1),
    _row("log.roll.hours", Kind.INT, 168, "hours", "log.roll.ms in hours.", minimum=1),
    _row("log.roll.jitter.hours", Kind.INT, 0, "hours", "log.roll.jitter.ms in hours.",
         minimum=0),
    _row("log.retention.check.interval.ms", Kind.LONG, 300_000, "ms",
         "Interval of the retention checks.", minimum=1),
    _row("log.initial.task.delay.ms", Kind.LONG, 30_000, "ms",
         "Delay of the first retention check, flush and checkpoint, unless their interval is less.",
         minimum=0),
    _row("log.flush.scheduler.interval.ms", Kind.LONG, 1_000, "ms",
         "Interval of the checks of flush.ms (Kafka's default: never).", minimum=1),
    _row("log.flush.offset.checkpoint.interval.ms", Kind.INT, 60_000, "ms",
         "Interval of the checkpoints of recovery points.", minimum=1),
    _row("log.flush.start.offset.checkpoint.interval.ms", Kind.INT, 60_000, "ms",
         "Interval of the checkpoints of log start offsets.", minimum=1),
    _row("replica.high.watermark.checkpoint.interval.ms", Kind.LONG, 5_000, "ms",
         "Interval of the checkpoints of high watermarks.", minimum=1),
    _row("producer.id.expiration.ms", Kind.INT, 86_400_000, "ms",
         "The state of an idempotent producer that was idle for this time is removed.", minimum=1,
         dynamic=True),
    _row("producer.id.expiration.check.interval.ms", Kind.INT, 600_000, "ms",
         "Interval of the checks for expired producers.", minimum=1),
    _row("headwater.log.files", Kind.LIST, (), "",
         "Modules whose log lines go to a file of their own, module=file each, as "
         "controller=/var/log/headwater/controller.log.", check_items=log_files),
    _row("headwater.tables.uri", Kind.STRING, None, "",
         "Folder or URI of the Delta tables, TOPIC-ID each; unset: tables in log.dir."),
    _row("headwater.tables.allowed.uris", Kind.LIST, None, "",
         "Folders and URIs below which a topic's headwater.table.uri may be; elsewhere it needs "
         "AlterConfigs on the cluster. Unset: headwater.tables.uri."),
    _row("headwater.catalog.key.file", Kind.STRING, None, "",
         "File of the tier service with the key that seals SCRAM credentials in the catalog, 32 "
         "bytes in base64; unset: they are not kept."),
)  # fmt: skip

_CLEANER = (
    _row("log.cleaner.enable", Kind.BOOLEAN, True, "",
         "Compact logs with cleanup.policy=compact; otherwise they only grow."),
    _row("log.cleaner.backoff.ms", Kind.LONG, 15_000, "ms",
         "Interval of the checks for logs to compact.", minimum=1, dynamic=True),
    _row("log.cleaner.threads", Kind.INT, 1, "",
         "Logs that are compacted at the same time, each by a niced process.", minimum=1,
         dynamic=True),
    _row("log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, "bytes",
         "Memory for the keys of all running compactions; a log with more keys takes more passes.",
         minimum=1 << 20, dynamic=True),
    _row("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max, "bytes/s",
         "Limit of the reads and writes of one compaction.", minimum=1,
         dynamic=True),
)  # fmt: skip

_TOPICS = (
    _row("num.partitions", Kind.INT, 1, "", "Partitions of an automatically created topic.",
         minimum=1, dynamic=True),
    _row("default.replication.factor", Kind.INT, 1, "",
         "Replicas of an automatically created topic.", minimum=1, dynamic=True),
    _row("auto.create.topics.enable", Kind.BOOLEAN, True, "",
         "Create a topic when a client asks for its metadata or produces to it."),
    _row("headwater.restore.groups.pending", Kind.BOOLEAN, False, "",
         "Set by headwater restore until it has committed the groups' offsets: no group finds its "
         "coordinator meanwhile.", dynamic=True),
    _row("delete.topic.enable", Kind.BOOLEAN, True, "", "Allow topics to be deleted."),
    _row("auto.leader.rebalance.enable", Kind.BOOLEAN, True, "",
         "Elect preferred leaders: at each check, and when a broker is back and in sync again."),
    _row("leader.imbalance.check.interval.seconds", Kind.LONG, 300, "s",
         "Interval of the checks for imbalanced leaders.", minimum=1),
    _row("leader.imbalance.per.broker.percentage", Kind.INT, 10, "%",
         "Tolerated share of non-preferred leaders per broker.", minimum=0, dynamic=True),
    _row("controlled.shutdown.enable", Kind.BOOLEAN, True, "",
         "Move leaderships to other brokers before a shutdown."),
    _row("controlled.shutdown.max.retries", Kind.INT, 3, "", "Retries of a controlled shutdown.",
         minimum=0),
    _row("controlled.shutdown.retry.backoff.ms", Kind.LONG, 200, "ms",
         "Pause before a retry of a controlled shutdown; none begins after 20 s.", minimum=0),
)  # fmt: skip

_QUOTAS = (
    _row("leader.replication.throttled.rate", Kind.LONG, LONG_MAX, "bytes",
         "Bytes per second that leaders send to throttled followers outside the ISR (KIP-73).",
         minimum=0, dynamic=True),
    _row("follower.replication.throttled.rate", Kind.LONG, LONG_MAX, "bytes",
         "Bytes per second that throttled followers here fetch outside the ISR (KIP-73).",
         minimum=0, dynamic=True),
    _row("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, LONG_MAX, "bytes",
         "Limit for copies of replicas that move between data folders.", minimum=0, dynamic=True),
    _row("replication.quota.window.num", Kind.INT, 11, "",
         "Number of windows for the rates of replication quotas.", minimum=1),
    _row("replication.quota.window.size.seconds", Kind.INT, 1, "s",
         "Length of a window of replication quotas.", minimum=1),
    _row("alter.log.dirs.replication.quota.window.num", Kind.INT, 11, "",
         "Number of windows for the rate of copies between data folders.", minimum=1),
    _row("alter.log.dirs.replication.quota.window.size.seconds", Kind.INT, 1, "s",
         "Length of a window for the rate of copies between data folders.", minimum=1),
)  # fmt: skip

_REPLICATION = (
    _row("replica.lag.time.max.ms", Kind.LONG, 30_000, "ms",
         "A follower that was not caught up for this time is removed from the ISR.", minimum=1),
    _row("replica.fetch.max.bytes", Kind.INT, 1 << 20, "bytes",
         "Bytes per partition in one fetch of a follower.", minimum=0),
    _row("replica.fetch.response.max.bytes", Kind.INT, 10 << 20, "bytes",
         "Bytes of one fetch of a follower.", minimum=0),
    _row("replica.fetch.wait.max.ms", Kind.INT, 500, "ms",
         "Maximum wait of a follower's fetch.", minimum=0),
    _row("replica.fetch.min.bytes", Kind.INT, 1, "bytes",
         "A follower's fetch waits for this many bytes.", minimum=0),
    _row("replica.fetch.backoff.ms", Kind.INT, 1_000, "ms",
         "Pause after a failed fetch of a follower.", minimum=0),
    _row("replica.socket.timeout.ms", Kind.INT, 30_000, "ms",
         "Timeout of a follower's requests, at most 10 s more than replica.fetch.wait.max.ms.",
         minimum=1),
    _row("replica.selector.class", Kind.STRING, LEADER_SELECTOR, "",
         "Which replica consumers read from: RackAwareReplicaSelector sends a consumer with a rack "
         "to an in-sync follower in that rack.", choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR)),
)  # fmt: skip

_GROUPS = (
    _row("offsets.topic.num.partitions", Kind.INT, 50, "",
         "Partitions of __consumer_offsets.", minimum=1),
    _row("offsets.topic.replication.factor", Kind.INT, 3, "",
         "Replicas of __consumer_offsets, which is created once that many brokers live (KIP-115).",
         minimum=1),
    _row("offsets.topic.segment.bytes", Kind.INT, 100 << 20, "bytes",
         "Segment size of __consumer_offsets.", minimum=1),
    _row("offsets.retention.minutes", Kind.INT, 10_080, "minutes",
         "Retention of the committed offsets of an empty group.", minimum=1),
    _row("offsets.retention.check.interval.ms", Kind.LONG, 600_000, "ms",
         "Interval of the checks for expired offsets.", minimum=1),
    _row("offset.metadata.max.bytes", Kind.INT, 4_096, "bytes",
         "Maximum size of a committed offset's metadata.", minimum=0),
    _row("group.min.session.timeout.ms", Kind.INT, 6_000, "ms",
         "Minimum session timeout of a member.", minimum=0),
    _row("group.max.session.timeout.ms", Kind.INT, 1_800_000, "ms",
         "Maximum session timeout of a member.", minimum=0),
    _row("group.initial.rebalance.delay.ms", Kind.INT, 3_000, "ms",
         "Wait for more members before the first rebalance of an empty group.", minimum=0),
    _row("group.max.size", Kind.INT, 2**31 - 1, "members",
         "Maximum number of members of a group.", minimum=1),
    _row("transaction.state.log.num.partitions", Kind.INT, 50, "",
         "Partitions of __transaction_state.", minimum=1),
    _row("transaction.state.log.replication.factor", Kind.INT, 3, "",
         "Replicas of __transaction_state, which is created once that many brokers live.",
         minimum=1),
    _row("transaction.state.log.min.isr", Kind.INT, 2, "",
         "min.insync.replicas of __transaction_state, at most its replication factor.", minimum=1),
    _row("transaction.state.log.segment.bytes", Kind.INT, 100 << 20, "bytes",
         "Segment size of __transaction_state.", minimum=1),
    _row("transaction.max.timeout.ms", Kind.INT, 900_000, "ms",
         "Maximum transaction timeout of a producer.", minimum=1),
    _row("transactional.id.expiration.ms", Kind.INT, 604_800_000, "ms",
         "An unused transactional id expires after this time, and the outcome of a batch write "
         "from Spark (at the earliest after epoch.max.ms).", minimum=1),
    _row("transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT, 3_600_000, "ms",
         "Interval of the checks for expired transactional ids.", minimum=1),
    _row("epoch.timeout.ms", Kind.INT, 60_000, "ms",
         "An epoch transaction (exactly once from Spark) is aborted when none of its tasks has "
         "joined, written or sent a heartbeat for this time.", minimum=3_000),
    _row("epoch.max.ms", Kind.INT, 3_600_000, "ms",
         "An epoch transaction is aborted when it is open for this time, whatever its tasks do. "
         "The participants of a batch write are forgotten this long after its end.",
         minimum=1_000),
    _row("transaction.two.phase.commit.enable", Kind.BOOLEAN, False, "",
         "Producers may prepare transactions, which never time out (KIP-939)."),
)  # fmt: skip

_NETWORK = (
    _row("socket.request.max.bytes", Kind.INT, 100 << 20, "bytes",
         "Maximum size of a request, checked before it is buffered.", minimum=1),
    _row("socket.send.buffer.bytes", Kind.INT, -1, "bytes",
         "SO_SNDBUF; -1: the operating system adapts it (Kafka's default: 102400).", minimum=-1),
    _row("socket.receive.buffer.bytes", Kind.INT, -1, "bytes",
         "SO_RCVBUF; -1: the operating system adapts it (Kafka's default: 102400).", minimum=-1),
    _row("max.connections", Kind.INT, 2**31 - 1, "",
         "Maximum connections of the broker; more wait.", minimum=0, dynamic=True),
    _row("max.connections.per.ip", Kind.INT, 2**31 - 1, "",
         "Maximum connections per client address.", minimum=0, dynamic=True),
    _row("max.connections.per.ip.overrides", Kind.LIST, (), "",
         "Exceptions from max.connections.per.ip, address:count each.",
         dynamic=True, check_items=connection_overrides),
    _row("max.connection.creation.rate", Kind.INT, 2**31 - 1, "",
         "Maximum new connections per second of the broker; more wait (KIP-612).", minimum=1,
         dynamic=True),
    _row("quota.window.num", Kind.INT, 11, "",
         "Number of windows for the rates of client quotas.", minimum=1),
    _row("quota.window.size.seconds", Kind.INT, 1, "s", "Length of a window of client quotas.",
         minimum=1),
    _row("controller.quota.window.num", Kind.INT, 11, "",
         "Number of windows for the quota of topic changes (KIP-599).", minimum=1),
    _row("controller.quota.window.size.seconds", Kind.INT, 1, "s",
         "Length of a window of the quota of topic changes.", minimum=1),
    _row("connections.max.idle.ms", Kind.LONG, 600_000, "ms",
         "A connection that was idle for this time is closed; -1: never.", minimum=-1),
    _row("fetch.max.bytes", Kind.INT, 55 << 20, "bytes", "Maximum size of a Fetch response.",
         minimum=1024),
    _row("max.incremental.fetch.session.cache.slots", Kind.INT, 1_000, "",
         "Maximum number of fetch sessions.", minimum=0),
    _row("queued.max.requests", Kind.INT, 500, "",
         "Requests in flight of a connection, beyond which it is not read.", minimum=1),
    _row("request.timeout.ms", Kind.INT, 30_000, "ms",
         "Timeout of requests to other brokers.", minimum=1),
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
