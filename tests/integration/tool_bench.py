"""What the uses of Kafka's command-line tools work with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headwater import Producer
from integration import clients
from integration.clients import CANONICAL
from integration.cluster import LocalCluster
from integration.jvm_tools import kafka_tool

TOOLS = "org.apache.kafka.tools"


class Bench(NamedTuple):
    """What a use may work with: three brokers, and a folder for its files."""

    cluster: LocalCluster
    folder: Path

    def tool(self, name: str, *arguments: str) -> str:
        """Run a tool that wants --bootstrap-server; its output. Raises RuntimeError on failure."""
        return kafka_tool(name, "--bootstrap-server", self.cluster.bootstrap, *arguments)

    def file(self, name: str, document: object) -> str:
        """A JSON file for a tool."""
        path = self.folder / name
        path.write_text(json.dumps(document))
        return str(path)

    def topic(self, name: str, *, filled: bool = True, **options: object) -> str:
        """A topic of the use's own, with the canonical records in partition 0."""
        self.cluster.create_topic(name, **options)  # type: ignore[arg-type]
        if filled:
            clients.write_confluent(self.cluster.bootstrap, name, CANONICAL)
        return name

    def fill(self, topic: str, count: int) -> None:
        """So many records."""
        with Producer(self.cluster.bootstrap) as producer:
            for number in range(count):
                producer.send(topic, str(number).encode())


def refused(run: Callable[[], str], words: str) -> None:
    """The tool must fail, saying so."""
    try:
        told = run()
    except RuntimeError as error:
        assert re.search(words, str(error)), error
    else:
        raise AssertionError(f"it was not refused: {told}")
