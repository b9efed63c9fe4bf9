"""Options of Kafka's clients (`kafka.*`) that the source and sink accept or refuse. Pure.

Spark's own connector hands every `kafka.*` option to Kafka's Java client, which Headwater does not
use. `options` reads some of these options, `task_security` those of security. Others only tune the
Java client and are accepted without effect. The rest would change the result if they were ignored:
they are refused with a remedy.
"""

from __future__ import annotations

_CONNECTIONS = (
    "kafka.client.dns.lookup",
    "kafka.connections.max.idle.ms",
    "kafka.enable.metrics.push",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.recovery.rebootstrap.trigger.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
)
_FETCHES_AND_GROUPS = (
    "kafka.allow.auto.create.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.check.crcs",
    "kafka.client.rack",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.group.remote.assignor",
    "kafka.heartbeat.interval.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
)
_BATCHES = (
    "kafka.buffer.memory",
    "kafka.compression.gzip.level",
    "kafka.compression.lz4.level",
    "kafka.compression.zstd.level",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.metadata.max.idle.ms",
    "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms",
    "kafka.retries",
)
_OF_SPARKS_CONNECTOR = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


SOURCE_WITHOUT_EFFECT = (*_CONNECTIONS, *_FETCHES_AND_GROUPS, *_OF_SPARKS_CONNECTOR)
SINK_WITHOUT_EFFECT = (*_CONNECTIONS, *_BATCHES)

_NO_JAVA = "no Java client runs here, so it can load no class"
_BINARY = "keys and values are binary here, as in Spark's Kafka connector: cast them in Spark"
_OWN_TRANSACTIONS = (
    "the sink writes in transactions of its own; headwater.sink.id names them, and their time"
    " limits are the brokers' epoch.timeout.ms and epoch.max.ms"
)
SOURCE_REFUSED = {
    "kafka.auto.offset.reset": "use the options startingOffsets and failOnDataLoss",
    "kafka.enable.auto.commit": (
        "offsets are the checkpoint's; headwater_spark.commit_progress commits them to a group too"
    ),
    "kafka.key.deserializer": _BINARY,
    "kafka.value.deserializer": _BINARY,
    "kafka.interceptor.classes": _NO_JAVA,
    "startingVersion": "name the version of the topic's table in fromDeltaVersion",
    "endingOffsetsByTimestampStrategy": (
        "a time after the last record always ends a read at the log's end, as in Spark's source"
    ),
}
SINK_REFUSED = {
    "kafka.key.serializer": _BINARY,
    "kafka.value.serializer": _BINARY,
    "kafka.interceptor.classes": _NO_JAVA,
    "kafka.partitioner.class": "give each row's partition in a column 'partition'",
    "kafka.partitioner.ignore.keys": "give each row's partition in a column 'partition'",
    "kafka.transactional.id": _OWN_TRANSACTIONS,
    "kafka.transaction.timeout.ms": _OWN_TRANSACTIONS,
}
