"""The driver's decisions for one write before its tasks run. Imports no pyspark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater_spark.sink.connections import SinkConnections
from headwater_spark.sink.sink_options import SinkOptions
from headwater_spark.sink.topics import partition_count


@dataclass(frozen=True, slots=True)
class Shipment:
    """Travels to the tasks of one write. Picklable."""

    ticket: int | None = None
    """Orders the runs of a query, whose ids have no order; None with at-least-once delivery."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """Of the topic in option `topic`."""


def new_shipment(options: SinkOptions, connections: SinkConnections) -> Shipment:
    """Ask the brokers. Raises before any row moves when the topic does not exist, or when the
    brokers have no epoch transactions.
    """
    counts = {}
    if options.topic is not None:
        counts[options.topic] = partition_count(
            connections.meta, options.topic, options.bootstrap_servers
        )
    ticket = connections.epochs.allocate_ticket() if options.is_exactly_once else None
    return Shipment(ticket, counts)
