"""Metrics of share groups and of their coordinators."""

from __future__ import annotations

from pathlib import Path

from headwater.client.connection import Connection
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.telemetry.share_coordinator_metrics import share_coordinator_metrics
from solo_broker import SoloBroker
from unit.api.test_share_groups import SMALL, joined
from unit.network.test_data_plane import serve


def test_a_group_and_its_states_are_counted(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC, configs={"cleanup.policy": "compact"})
        broker.create_topic("t", 2)
        await joined(c, "t")
        services = broker.services
        families = share_coordinator_metrics(services.groups.coordinated(), services.share_states)
        found = {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
        }
        assert found["headwater_share_groups", "Stable"] == 1
        assert found["headwater_share_states",] == 2
        assert found["headwater_share_state_records_in_vain",] == 0
        assert found["headwater_share_state_prunes_total",] == 0

    serve(tmp_path, story, **SMALL)
