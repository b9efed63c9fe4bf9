"""Flink from Kafka to Kafka, exactly once: each checkpoint commits its Kafka transactions.

Reads lines "key,number" of one topic, counts the lines of each key, and writes "key,number,count"
to another topic. Source positions, counts and transactions belong to the same checkpoint: whatever
is killed, and however often, the output is as if nothing had been.

    make integrations                       # fetches Flink and its connector into .cache
    .cache/integrations/flink/venv/bin/python jobs/flink/exactly_once.py \\
        --connector .cache/integrations/flink/flink-sql-connector-kafka.jar \\
        --bootstrap-servers 127.0.0.1:9092 --source lines --sink counts --checkpoints /tmp/counts

Run it again after a crash, with the same folder: it starts from the newest complete checkpoint.

`--transaction-timeout-ms` must be longer than the longest outage of job and brokers together: a
transaction that waits for the commit of its checkpoint is aborted at its timeout. The job then
fails when it commits, as Headwater answers TRANSACTION_ABORTABLE. (On Apache Kafka Flink logs
"Unable to commit transaction", and goes on without these records.)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.functions import KeyedProcessFunction
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

NAMING_STRATEGIES = ("INCREMENTING", "POOLING")


class RunningCount(KeyedProcessFunction):
    """Counts the lines of each key in Flink's state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Bind the state of the current key."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        """The line with its place among the lines of its key, from 1 on."""
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield f"{value},{count}"


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint: Flink renames `_metadata` into place as the last step."""
    complete = [path.parent for path in folder.glob("*/chk-*/_metadata")]
    return max(complete, key=lambda path: int(path.name.removeprefix("chk-")), default=None)


def configuration(options: argparse.Namespace) -> Configuration:
    """Flink's settings: where checkpoints are, from which one to start, what a failure does."""
    rows = {
        "pipeline.jars": options.connector.resolve().as_uri(),
        # Without it the workers run whatever `python` is, fail, and are restarted without a word.
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.execution-mode": options.python_mode,
        "parallelism.default": str(options.parallelism),
        "execution.checkpointing.dir": options.checkpoints.resolve().as_uri(),
        "execution.checkpointing.interval": f"{options.checkpoint_interval_ms} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.timeout": "2 min",
        "execution.checkpointing.num-retained": "2",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": str(options.restarts),
        "restart-strategy.fixed-delay.delay": "1 s",
        "rest.bind-port": "0",
        "taskmanager.memory.network.max": "64 mb",
    }
    checkpoint = newest_checkpoint(options.checkpoints)
    if checkpoint is not None:
        rows["execution.state-recovery.path"] = checkpoint.resolve().as_uri()
        rows["execution.state-recovery.claim-mode"] = "CLAIM"
    settings = Configuration()
    for key, value in rows.items():
        settings.set_string(key, value)
    return settings


def source(options: argparse.Namespace) -> KafkaSource:
    """Reads from the positions of the checkpoint; from the beginning when there is none.

    Only committed records: the input may be written in transactions, too.
    """
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(options.bootstrap_servers)
        .set_topics(options.source)
        .set_group_id(f"{options.transactional_id_prefix}-source")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .set_property("isolation.level", "read_committed")
        .build()
    )


def sink(options: argparse.Namespace) -> KafkaSink:
    """Writes in transactions that are committed when their checkpoint is complete."""
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(options.sink)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    builder = (
        KafkaSink.builder()
        .set_bootstrap_servers(options.bootstrap_servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(options.transactional_id_prefix)
        .set_property("transaction.timeout.ms", str(options.transaction_timeout_ms))
    )
    # PyFlink has no method for it.
    strategies = get_gateway().jvm.org.apache.flink.connector.kafka.sink.TransactionNamingStrategy
    builder._j_builder.setTransactionNamingStrategy(getattr(strategies, options.naming))
    return builder.build()


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connector", type=Path, required=True, help="Flink's Kafka connector jar")
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--source", required=True, help="topic to read")
    parser.add_argument("--sink", required=True, help="topic to write")
    parser.add_argument("--checkpoints", type=Path, required=True, help="folder that outlives runs")
    parser.add_argument("--checkpoint-interval-ms", type=int, default=1_000)
    parser.add_argument("--transactional-id-prefix", default="flink-counts")
    parser.add_argument("--transaction-timeout-ms", type=int, default=600_000)
    parser.add_argument("--naming", choices=NAMING_STRATEGIES, default="INCREMENTING")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=100, help="before the job gives up")
    parser.add_argument("--python-mode", choices=("process", "thread"), default="process")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Run the job until it is cancelled or fails for good."""
    options = parsed(arguments)
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration(options))
    (
        environment.from_source(source(options), WatermarkStrategy.no_watermarks(), "lines")
        .key_by(lambda line: line.partition(",")[0], key_type=Types.STRING())
        .process(RunningCount(), output_type=Types.STRING())
        .sink_to(sink(options))
    )
    environment.execute("exactly-once counts")


if __name__ == "__main__":
    main(sys.argv[1:])
