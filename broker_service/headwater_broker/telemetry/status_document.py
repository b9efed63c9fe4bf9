"""The status document: the cluster as this broker sees it, and its own state, as JSON (format 1).

The status page and `headwater status` show it. It is encoded in slices, each in a turn of the loop,
so that thousands of partitions stall no request. A slice is consistent in itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headwater.clock import Clock
from headwater_broker.api.context import Services
from headwater_broker.metadata.cache import TopicMetadata
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_manager import describe_partition
from headwater_broker.replica.share.share_partition_manager import describe_share_partition
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.broker_events import BrokerEvents
from headwater_broker.telemetry.consumer_lag import describe_group, shown_groups
from headwater_broker.telemetry.epoch_metrics import describe_epoch, oldest_epochs
from headwater_broker.telemetry.open_transactions import (
    ROWS_MAX,
    blocked_partitions,
    describe_blocked,
    describe_open,
    oldest,
)
from headwater_broker.telemetry.process_stats import rss_bytes
from headwater_broker.telemetry.tiering import tier_reports

FORMAT = 1
SLICE_ROWS = 50
"""Rows that are encoded in one turn of the loop, in about a third of a millisecond."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(slots=True)
class _Totals:
    at_s: float
    bytes_in: int = 0
    bytes_out: int = 0
    records_in: int = 0


class StatusDocument:
    """Encodes the document. A timer calls `sample`, which measures rates, every second."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        lag: LagProbe,
        is_ready: Callable[[], bool],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.broker_events = BrokerEvents()
        self.status_port = 0
        """The port of the status page; 0 when there is none."""
        self._services = services
        self._clock = clock
        self._lag = lag
        self._is_ready = is_ready
        self._broker_epoch = broker_epoch
        self._started_ms = clock.now_ms()
        self._last = _Totals(clock.monotonic())
        self._rates = {"bytes_in": 0.0, "bytes_out": 0.0, "records_in": 0.0}

    async def text(self) -> str:
        """The whole document."""
        services = self._services
        head = _encode(self._head(services))
        topics = await _rows(_topic, sorted(services.view.topics.values(), key=lambda t: t.name))
        hosted = _encode(services.replicas.describe_fetching())

        def row(partition: Partition) -> dict[str, Any]:
            end = services.tiered_end(partition.topic_id, partition.partition)
            return {**describe_partition(partition), "tiered_end_offset": end}

        shown, left_out = shown_groups(services.groups.coordinated())
        groups = await _rows(describe_group, shown)
        tiering = await _rows(dict, tier_reports(services.groups.coordinated()))
        counts = services.transactions.counts()
        open_here = oldest(t for shard in counts for t in shard.open.values())
        transactions = await _rows(describe_open, open_here)
        epochs = await _rows(describe_epoch, oldest_epochs(services.sinks.tables()))
        blocked_here = list(islice(blocked_partitions(services.replicas), ROWS_MAX))
        blocked = await _rows(describe_blocked, blocked_here)
        shares = await _rows(describe_share_partition, islice(services.shares, ROWS_MAX))
        keys = sorted(services.replicas.partitions.items())
        rows = await _rows(row, (partition for _, partition in keys))
        return (
            f'{head[:-1]},"topics":[{topics}],"groups":[{groups}],"groups_left_out":{left_out},'
            f'"tiering":[{tiering}],"transactions":[{transactions}],"blocked":[{blocked}],'
            f'"epochs":[{epochs}],"share_partitions":[{shares}],'
            f'"hosted":{hosted[:-1]},"partitions":[{rows}]}}}}'
        )

    def sample(self) -> None:
        """Measure the rates since the last sample."""
        now, last = self._totals(), self._last
        elapsed = now.at_s - last.at_s
        if elapsed <= 0:
            return
        self._last = now
        self._rates = {
            "bytes_in": round((now.bytes_in - last.bytes_in) / elapsed, 1),
            "bytes_out": round((now.bytes_out - last.bytes_out) / elapsed, 1),
            "records_in": round((now.records_in - last.records_in) / elapsed, 1),
        }

    def observe_brokers(self) -> None:
        """Record brokers that left or came back."""
        self.broker_events.observe(self._services.view.brokers, self._clock.now_ms())

    def _head(self, services: Services) -> dict[str, Any]:
        view = services.view
        now = self._totals()
        return {
            "format": FORMAT,
            "ready": self._is_ready(),
            "broker_id": services.broker_id,
            "broker_epoch": self._broker_epoch(),
            "cluster_id": services.cluster_id,
            "controller_id": view.controller_id,
            "now_ms": self._clock.now_ms(),
            "started_ms": self._started_ms,
            "status_port": self.status_port,
            "rss_bytes": rss_bytes(),
            "brokers": [
                {
                    "broker_id": broker.broker_id,
                    "broker_epoch": broker.broker_epoch,
                    "rack": broker.rack,
                    "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints],
                    "control_address": broker.control_address,
                }
                for _, broker in sorted(view.brokers.items())
            ],
            "events": self.broker_events.describe(),
            "rates": {
                **self._rates,
                "bytes_in_total": now.bytes_in,
                "bytes_out_total": now.bytes_out,
                "records_in_total": now.records_in,
            },
            "connections": services.meters.connections,
            "parked": {
                "produce": services.purgatories.produce.parked,
                "fetch": services.purgatories.fetch.parked,
            },
            "fetch_sessions": len(services.sessions),
            "share_sessions": len(services.shares.sessions),
            "loop_turn_ms": {
                "last_minute": round(self._lag.recent_turn_s * 1000, 3),
                "since_start": round(self._lag.longest_turn_s * 1000, 3),
            },
            "timer_delay_ms": {
                "last_minute": round(self._lag.recent_worst_s * 1000, 3),
                "since_start": round(self._lag.worst_s * 1000, 3),
            },
        }

    def _totals(self) -> _Totals:
        total = self._services.meters.total()
        return _Totals(self._clock.monotonic(), total.bytes_in, total.bytes_out, total.records_in)


def _topic(topic: TopicMetadata) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "configs": dict(topic.configs),
        "partitions": [
            {
                "partition": state.partition,
                "leader": state.leader_id,
                "leader_epoch": state.leader_epoch,
                "replicas": list(state.replicas),
                "adding_replicas": list(state.adding_replicas),
                "isr": list(state.isr),
                "offline_reason": state.offline_reason,
            }
            for _, state in sorted(topic.partitions.items())
        ],
    }


async def _rows(describe: Callable[[Any], dict[str, Any]], items: Iterable[Any]) -> str:
    """The items as JSON, separated by commas; other work runs after every SLICE_ROWS rows."""
    texts: list[str] = []
    weight = 0
    for item in items:
        row = describe(item)
        texts.append(_encode(row))
        weight += 1 + len(row.get("partitions", ()))
        if weight >= SLICE_ROWS:
            weight = 0
            await asyncio.sleep(0)
    return ",".join(texts)
