"""The status document: what this broker sees, as JSON (format 1). The page and `status` show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.clock import Clock
from headwater_broker.api.services import Services
from headwater_broker.node.lag import LagProbe

FORMAT = 1


@dataclass(slots=True)
class _Totals:
    at_s: float
    bytes_in: int
    bytes_out: int
    records_in: int


class StatusDocument:
    """Builds the document; rates are between two builds at least a second apart."""

    def __init__(
        self,
        services: Callable[[], Services],
        clock: Clock,
        lag: LagProbe,
        is_ready: Callable[[], bool],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._services = services
        self._clock = clock
        self._lag = lag
        self._is_ready = is_ready
        self._broker_epoch = broker_epoch
        self._last = _Totals(clock.monotonic(), 0, 0, 0)
        self._rates = {"bytes_in": 0.0, "bytes_out": 0.0, "records_in": 0.0}

    def build(self) -> dict[str, Any]:
        """The whole document."""
        services = self._services()
        view = services.view
        hosted = services.replicas.describe()
        for row in hosted.get("partitions", []):
            row["tiered_end_offset"] = services.tiered_end(row["topic"], row["partition"])
        return {
            "format": FORMAT,
            "ready": self._is_ready(),
            "broker_id": services.broker_id,
            "broker_epoch": self._broker_epoch(),
            "cluster_id": services.cluster_id,
            "controller_id": view.controller_id,
            "now_ms": self._clock.now_ms(),
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
            "topics": self._topics(services),
            "hosted": hosted,
            "rates": self._measure(services),
            "connections": services.meters.connections,
            "parked": {
                "produce": services.purgatories.produce.parked,
                "fetch": services.purgatories.fetch.parked,
            },
            "fetch_sessions": len(services.sessions),
            "loop_delay_ms": {
                "recent_worst": round(self._lag.recent_worst_s * 1000, 3),
                "worst": round(self._lag.worst_s * 1000, 3),
            },
        }

    def _topics(self, services: Services) -> list[dict[str, Any]]:
        return [
            {
                "topic": topic.name,
                "topic_id": str(topic.topic_id),
                "configs": dict(topic.configs),
                "partitions": [
                    {
                        "partition": state.partition,
                        "leader": state.leader_id,
                        "leader_epoch": state.leader_epoch,
                        "replicas": list(state.replicas),
                        "isr": list(state.isr),
                        "offline_reason": state.offline_reason,
                    }
                    for _, state in sorted(topic.partitions.items())
                ],
            }
            for _, topic in sorted(services.view.topics.items())
        ]

    def _measure(self, services: Services) -> dict[str, float]:
        meters = services.meters.topics.values()
        now = _Totals(
            self._clock.monotonic(),
            sum(m.bytes_in for m in meters),
            sum(m.bytes_out for m in meters),
            sum(m.records_in for m in meters),
        )
        elapsed = now.at_s - self._last.at_s
        if elapsed >= 1.0:
            last = self._last
            self._rates = {
                "bytes_in": round((now.bytes_in - last.bytes_in) / elapsed, 1),
                "bytes_out": round((now.bytes_out - last.bytes_out) / elapsed, 1),
                "records_in": round((now.records_in - last.records_in) / elapsed, 1),
            }
            self._last = now
        totals = {
            "bytes_in_total": now.bytes_in,
            "bytes_out_total": now.bytes_out,
            "records_in_total": now.records_in,
        }
        return {**self._rates, **totals}
