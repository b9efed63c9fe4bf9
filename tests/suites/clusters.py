"""The cluster under test: three brokers that may be killed, either Headwater's or Apache Kafka's.

Every suite runs against both, so that a failure can be told apart from a fault of the suite, or
of the client.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import confluent_kafka.admin
from peers import KafkaPeer, wait_for_port

from integration.cluster import LocalCluster
from integration.conftest import next_base_port

BROKERS = 3
KAFKA = "kafka"
HEADWATER = "headwater"
KINDS = (HEADWATER, KAFKA)
ADMIN_S = 30.0


class ClusterUnderTest(Protocol):
    """Brokers by number, 0 to BROKERS - 1."""

    @property
    def bootstrap(self) -> str:
        """The bootstrap list."""

    def kill(self, broker: int) -> None:
        """SIGKILL; the broker stays down until `restart`."""

    def restart(self, broker: int) -> None:
        """Start a killed broker; return when it accepts connections."""


class HeadwaterUnderTest:
    """Headwater's brokers, as `headwater up` starts them."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap(self) -> str:
        """The bootstrap list."""
        return self._cluster.bootstrap

    def kill(self, broker: int) -> None:
        """SIGKILL; the broker stays down until `restart`."""
        self._cluster.kill_broker(broker)

    def restart(self, broker: int) -> None:
        """Start a killed broker; return when it is ready."""
        self._cluster.restart(broker)


class KafkaUnderTest:
    """Apache Kafka's brokers, each of them a controller too."""

    def __init__(self, peer: KafkaPeer) -> None:
        self._peer = peer

    @property
    def bootstrap(self) -> str:
        """The bootstrap list."""
        return self._peer.bootstrap

    def kill(self, broker: int) -> None:
        """SIGKILL; the broker stays down until `restart`."""
        process = self._peer.processes[broker]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def restart(self, broker: int) -> None:
        """Start a killed broker; return when it accepts connections."""
        with (self._peer.folder / f"kafka-{broker}" / "out.log").open("ab") as out:
            process = subprocess.Popen(
                self._peer.processes[broker].args, stdout=out, stderr=subprocess.STDOUT
            )
        self._peer.processes[broker] = process
        wait_for_port(self._peer.ports[broker], process)


@contextmanager
def started(
    kind: str, folder: Path, properties: Mapping[str, str] | None = None
) -> Iterator[ClusterUnderTest]:
    """A cluster of `BROKERS` brokers of this kind, ended at the exit, with these broker configs."""
    if kind == KAFKA:
        peer = KafkaPeer(folder / "kafka", BROKERS, properties=properties or {}).start()
        try:
            yield KafkaUnderTest(peer)
        finally:
            peer.stop()
        return
    with LocalCluster(folder / "headwater", next_base_port(folder), BROKERS, properties) as cluster:
        yield HeadwaterUnderTest(cluster)


def create_topic(bootstrap: str, topic: str, partitions: int) -> str:
    """A topic that survives the loss of any one broker; its name."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    settings = {"min.insync.replicas": "2"}
    new = confluent_kafka.admin.NewTopic(topic, partitions, BROKERS, config=settings)
    deadline = time.monotonic() + ADMIN_S
    while True:
        try:
            admin.create_topics([new])[topic].result(ADMIN_S)
        except confluent_kafka.KafkaException as error:
            # A cluster that has just started may not yet know all its brokers.
            few = confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR
            if error.args[0].code() != few or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return topic
