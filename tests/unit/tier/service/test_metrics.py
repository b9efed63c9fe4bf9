"""The counters of a service as Prometheus reads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headwater.errors import UsageError
from headwater.operations.metrics_server import MetricsListener, serve_metrics
from headwater.testing.clocks import ManualClock
from headwater_tier.service.metrics import ServiceCollector
from headwater_tier.service.schedule import Schedule
from headwater_tier.service.service import TieringService


def collector() -> ServiceCollector:
    schedule = Schedule()
    schedule.follow({"a": 3.0})
    schedule.topics["a"].saw(0, now=-3.0)
    schedule.topics["a"].saw(1, now=-2.0)
    schedule.topics["a"].committed(-2.0, now=2.5)
    state: Any = SimpleNamespace(name="a", rows=7, fetched_bytes=900, commits=2, failures=1)
    service = SimpleNamespace(topics={"a": state}, schedule=schedule)
    return ServiceCollector(cast(TieringService, service), lambda: 64, ManualClock())


def test_counters_and_seconds_behind_are_exported() -> None:
    registry = CollectorRegistry()
    registry.register(collector())
    text = generate_latest(registry).decode()
    for line in (
        'headwater_tier_service_rows_total{topic="a"} 7.0',
        'headwater_tier_service_failures_total{topic="a"} 1.0',
        'headwater_tier_service_behind_seconds{topic="a"} 3.0',
        'headwater_tier_service_achieved_seconds{topic="a"} 4.5',
        "headwater_tier_service_folded_files_total 64.0",
        "headwater_tier_service_topics 1.0",
    ):
        assert line in text


def test_a_listener_that_cannot_be_is_told_with_a_remedy() -> None:
    for address in ("9100", "host:", "127.0.0.1:99999999"):
        with pytest.raises(UsageError, match="--metrics"):
            serve_metrics(MetricsListener("--metrics", address), collector())
