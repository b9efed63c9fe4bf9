"""Sinks and epochs in metrics and in the status document, of one broker."""

from __future__ import annotations

from pathlib import Path

from headwater.client.connection import Connection
from headwater.topic_names import TRANSACTION_TOPIC
from headwater_broker.telemetry.transaction_metrics import LATE_AFTER_S, coordinator_metrics
from solo_broker import SoloBroker
from unit.api.epoch_requests import Writer, ticket, write
from unit.network.test_data_plane import serve
from unit.telemetry.test_transaction_metrics import scrape, status

AN_HOUR_MS = 3_600_000


def test_epochs_are_counted_by_state(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        first = Writer(c, await ticket(c))
        assert (await first.commit(await first.join())).is_complete
        assert (await status(broker))["epochs"] == []
        second = Writer(c, await ticket(c), epoch=1)
        joined = await second.join(0, 0, 0, 1)
        await write(c, joined)
        (row,) = (await status(broker))["epochs"]
        assert (row["sink"], row["epoch"], row["ticket"]) == ("alerts", 1, second.ticket)
        assert (row["state"], row["participants"], row["markers_due"]) == ("Open", 1, 0)
        assert row["deadline_ms"] > row["since_ms"]
        assert (await second.prepare(joined)).error_code == 0
        (row,) = (await status(broker))["epochs"]
        assert (row["state"], row["deadline_ms"]) == ("Prepared", None)
        found = await scrape(broker)
        assert found["headwater_sinks", ("query",)] == 1
        assert found["headwater_sinks", ("batch",)] == 0
        states = [found["headwater_epochs", (s,)] for s in ("Open", "Prepared", "Committing")]
        assert states == [0, 1, 0]
        assert found["headwater_oldest_epoch_seconds", ("Open",)] == 0
        assert found["headwater_oldest_epoch_seconds", ("Prepared",)] >= 0
        assert found["headwater_epoch_replies_total", ("join", "OPEN")] == 2
        assert found["headwater_epoch_replies_total", ("prepare", "PREPARED")] == 1

    serve(tmp_path, story, transaction_state_log_num_partitions="2")


def test_a_participant_is_never_late(tmp_path: Path) -> None:
    """Its epoch has the deadline, which heartbeats move; a prepared one has none."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(TRANSACTION_TOPIC, 2)
        broker.create_topic("flights", 2)
        writer = Writer(c, await ticket(c))
        await writer.prepare(await writer.join(0, 0, 0))
        (row,) = (await status(broker))["transactions"]
        assert (row["transactional_id"], row["timeout_ms"]) == ("__hw.alerts.0", None)
        later_ms = broker.services.clock.now_ms() + AN_HOUR_MS + LATE_AFTER_S
        metrics = coordinator_metrics(broker.services.transactions.counts(), later_ms)
        (late,) = (m for m in metrics if m.name == "headwater_late_transactions")
        assert late.samples[0].value == 0

    serve(tmp_path, story, transaction_state_log_num_partitions="2")
