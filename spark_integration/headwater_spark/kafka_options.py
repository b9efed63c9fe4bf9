"""Kafka clients' options (`kafka.*`) that headwater's source and sink do not act on. Pure.

Spark's own connector hands every `kafka.*` option to Kafka's Java client. There is no such client
here, so each name that users pass to it is one of three: `options` reads it; it tunes a mechanism
that the source or sink does without, and has no effect; or ignoring it would change what is read or
written, or how safely, and it is refused with a remedy.
"""

from __future__ import annotations

from headwater.errors import UsageError

SECURITY_PROTOCOL = "kafka.security.protocol"
PLAINTEXT = "PLAINTEXT"

_CONNECTIONS = (
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
_FETCHES_AND_GROUPS = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "check.crcs",
    "client.rack",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
)
_BATCHES = (
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "retries",
)
_OF_SPARKS_CONNECTOR = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


def _kafka(*groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"kafka.{name}" for group in groups for name in group)


SOURCE_WITHOUT_EFFECT = (*_kafka(_CONNECTIONS, _FETCHES_AND_GROUPS), *_OF_SPARKS_CONNECTOR)
SINK_WITHOUT_EFFECT = _kafka(_CONNECTIONS, _BATCHES)

_NO_JAVA = "no Java client runs here, so it can load no class"
_BINARY = "keys and values are binary here, as in Spark's Kafka connector: cast them in Spark"
_NOT_BUILT = "the source has no such limit: gather rows by trigger(processingTime=...)"
_NO_TRANSACTIONS = "the sink is at least once and writes without transactions"
SOURCE_REFUSED = {
    "kafka.auto.offset.reset": "use the options startingOffsets and failOnDataLoss",
    "kafka.enable.auto.commit": (
        "offsets are the checkpoint's; headwater_spark.commit_progress commits them to a group too"
    ),
    "kafka.key.deserializer": _BINARY,
    "kafka.value.deserializer": _BINARY,
    "kafka.interceptor.classes": _NO_JAVA,
    "minOffsetsPerTrigger": _NOT_BUILT,
    "maxTriggerDelay": _NOT_BUILT,
}
SINK_REFUSED = {
    "kafka.key.serializer": _BINARY,
    "kafka.value.serializer": _BINARY,
    "kafka.interceptor.classes": _NO_JAVA,
    "kafka.partitioner.class": "give each row's partition in a column 'partition'",
    "kafka.partitioner.ignore.keys": "give each row's partition in a column 'partition'",
    "kafka.transactional.id": _NO_TRANSACTIONS,
    "kafka.transaction.timeout.ms": _NO_TRANSACTIONS,
}
_SECURED = ("kafka.sasl.", "kafka.ssl.")
"""Beginnings of the names that set up what only another security protocol uses."""


def check_security(name: str, value: str) -> bool:
    """True for an option of the security protocol that is served. Raises UsageError for others."""
    lower = name.lower()
    if lower == SECURITY_PROTOCOL:
        if value.strip().upper() != PLAINTEXT:
            raise UsageError(
                f"option {name!r} is {value!r}, but Headwater serves {PLAINTEXT} only so far,"
                f" without TLS and SASL: set it to {PLAINTEXT} or leave it out"
            )
        return True
    if lower.startswith(_SECURED):
        raise UsageError(
            f"option {name!r}: Headwater serves {PLAINTEXT} only so far, without TLS and SASL:"
            " leave it out"
        )
    return False
