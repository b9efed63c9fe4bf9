"""The text of a scrape of a real broker with real requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.core import Metric

from headwater import __version__
from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.control import ConfigEntry
from headwater_broker.controller.controller import ControllerService
from headwater_broker.runtime.loop_lag import LagProbe
from headwater_broker.telemetry.leader_end_offsets import LeaderEndOffsets
from headwater_broker.telemetry.metrics import BrokerCollector, MetricsText
from headwater_broker.telemetry.process_metrics import controller_metrics
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, produce, serve

Values = dict[tuple[str, tuple[str, ...]], float]


def values(families: Iterable[Metric]) -> Values:
    """(name of the sample, values of its labels in order) -> value."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }


async def scrape(broker: SoloBroker) -> Values:
    """What /metrics holds; a broker that is alone knows nothing of other brokers."""
    controller = SimpleNamespace(is_active=True, offline_partitions=3, unclean_elections_total=2)
    collector = BrokerCollector(
        broker.services,
        LagProbe(asyncio.get_running_loop()),
        cast(ControllerService, controller),
        LeaderEndOffsets(broker.view, cast(Any, None), "PLAINTEXT"),
    )
    text = MetricsText(collector)
    families = await text.collect()
    assert text.format(families).startswith(b"# HELP headwater_")
    return values(families)


def test_below_the_minimum_is_what_refuses_acks_all(tmp_path: Path) -> None:
    """A topic with fewer replicas than min.insync.replicas needs only those."""

    async def story(broker: SoloBroker, _: Connection) -> None:
        two: Any = {"configs": {"min.insync.replicas": "2"}}
        broker.create_topic("alone", **two)
        broker.create_topic("both", replicas=(1, 2), **two)
        assert (await scrape(broker))["headwater_under_min_isr_partitions", ()] == 0
        broker.create_topic("short", replicas=(1, 2), isr=(1,), **two)
        assert (await scrape(broker))["headwater_under_min_isr_partitions", ()] == 1

    serve(tmp_path, story)


def test_the_controller_tells_of_the_cluster() -> None:
    controller = SimpleNamespace(is_active=True, offline_partitions=3, unclean_elections_total=2)
    assert values(controller_metrics(cast(ControllerService, controller))) == {
        ("headwater_active_controller", ()): 1,
        ("headwater_offline_partitions", ()): 3,
        ("headwater_unclean_elections_total", ()): 2,
    }


def test_the_versions_are_told(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, _: Connection) -> None:
        found = await scrape(broker)
        assert any(
            name == "headwater_build_info" and __version__ in labels and value == 1
            for (name, labels), value in found.items()
        )

    serve(tmp_path, story)


def test_histograms_of_requests_agree_with_their_count(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(300):
            await produce(c, "t", batch())
        for _ in range(3):
            await fetch(c, "t", 0)
        for _ in range(2):
            await c.call(MetadataRequest(topics=None), MetadataResponse)
        found = await scrape(broker)
        for api, number in (("Produce", 300), ("FetchConsumer", 3), ("Metadata", 2)):
            assert found["headwater_requests_total", (api,)] == number
            assert found["headwater_request_seconds_count", (api,)] == number
            for stage in ("queue", "local", "remote", "throttle", "send"):
                assert found["headwater_request_stage_seconds_count", (api, stage)] == number
            stages = [
                found["headwater_request_stage_seconds_sum", (api, stage)]
                for stage in ("queue", "local", "remote", "send")
            ]
            assert sum(stages) == pytest.approx(found["headwater_request_seconds_sum", (api,)])
            assert stages[1] > 0

    serve(tmp_path, story)


def test_a_parked_request_has_remote_time(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("replicated", replicas=(1, 2))
        await fetch(c, "t", 0, max_wait_ms=50)
        row = await produce(c, "replicated", batch(), acks=-1, timeout_ms=30)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        found = await scrape(broker)
        for api, at_least in (("FetchConsumer", 0.045), ("Produce", 0.025)):
            assert found["headwater_request_stage_seconds_sum", (api, "remote")] >= at_least
            assert found["headwater_request_seconds_sum", (api,)] >= at_least
            assert found["headwater_request_stage_seconds_sum", (api, "local")] < at_least
        assert found["headwater_fetch_expired_total", ()] == 1
        assert found["headwater_produce_expired_total", ()] == 1
        assert found["headwater_request_errors_total", ("Produce", "REQUEST_TIMED_OUT")] == 1

    serve(tmp_path, story)


def test_followers_fetches_are_told_apart(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        for _ in range(3):
            await fetch(c, "t", 0, replica_id=2)
        found = await scrape(broker)
        counts = [
            found["headwater_requests_total", (api,)] for api in ("FetchConsumer", "FetchFollower")
        ]
        assert counts == [1, 2], "the first one shows that the peer is a follower"
        assert found["headwater_request_seconds_count", ("FetchFollower",)] == 2

    serve(tmp_path, story)


def test_what_is_refused_is_counted_by_topic_and_by_error(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", configs={"max.message.bytes": "100"})
        data = batch(1, 200)
        row = await produce(c, "t", data)
        assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
        await produce(c, "made-up", data)
        part = await fetch(c, "t", 77)
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await fetch(c, "made-up", 0)
        found = await scrape(broker)
        assert found["headwater_topic_bytes_rejected_total", ("t",)] == len(data)
        assert found["headwater_topic_failed_produce_requests_total", ("t",)] == 1
        assert found["headwater_topic_failed_fetch_requests_total", ("t",)] == 1
        assert found["headwater_topic_bytes_in_total", ("t",)] == 0
        assert not [labels for _, labels in found if "made-up" in labels]
        errors = {
            labels: value
            for (name, labels), value in found.items()
            if name == "headwater_request_errors_total"
        }
        assert errors == {
            ("Produce", "MESSAGE_TOO_LARGE"): 1,
            ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
            ("FetchConsumer", "OFFSET_OUT_OF_RANGE"): 1,
            ("FetchConsumer", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        }

    serve(tmp_path, story)


def test_the_time_for_which_a_client_is_muted_is_its_throttle_time(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        quota = ConfigEntry(name="producer_byte_rate", value="1")
        broker.services.quotas.update({"clients/<default>": {quota.name: quota.value}})
        await produce(c, "t", batch())
        found = await scrape(broker)
        throttled = found["headwater_request_stage_seconds_sum", ("Produce", "throttle")]
        assert throttled == found["headwater_throttled_seconds_total", ("producer_byte_rate",)] > 1
        assert found["headwater_request_seconds_sum", ("Produce",)] < 1

    serve(tmp_path, story)


def test_flushes_are_counted_and_timed(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", configs={"flush.messages": "1"})
        before = (await scrape(broker))["headwater_log_flush_seconds_count", ()]
        for _ in range(3):
            await produce(c, "t", batch())
        found = await scrape(broker)
        assert found["headwater_log_flush_seconds_count", ()] == before + 3
        assert found["headwater_log_flush_seconds_sum", ()] > 0
        assert found["headwater_log_flush_seconds_bucket", ("+Inf",)] == before + 3

    serve(tmp_path, story)


def test_a_fetch_that_waits_is_counted_when_its_connection_goes(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        waiting = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=60_000))
        purgatory = broker.services.purgatories.fetch
        while not purgatory.parked:
            await asyncio.sleep(0)
        assert (await scrape(broker))["headwater_request_seconds_count", ("FetchConsumer",)] == 0
        c.close()
        with pytest.raises(ConnectionError):
            await waiting
        while purgatory.parked:
            await asyncio.sleep(0)
        assert (await scrape(broker))["headwater_request_seconds_count", ("FetchConsumer",)] == 1

    serve(tmp_path, story)
