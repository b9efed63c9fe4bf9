"""What a log takes over from an older topic of its name, which goes as it comes: nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.errors import ErrorCode
from headwater.ports.remote_log import TieredRange, TieredTopic
from headwater.testing.memory_remote_log import MemoryRemoteLog
from headwater.wire.control import (
    ConfigEntry,
    LeaderAndIsrRequest,
    PartitionState,
    TopicState,
)
from headwater_broker.node.tiering import TieredEnds
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.replication.test_replica_manager import A, B, codes, play, state, tell


def made_anew(*partitions: PartitionState, **overrides: str) -> LeaderAndIsrRequest:
    """Topic `a` has another id, and these overrides."""
    rows = tuple(ConfigEntry(name=k.replace("_", "."), value=v) for k, v in overrides.items())
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=5,
        broker_epoch=BROKER_EPOCH,
        full=False,
        partitions=tuple(replace(row, topic="a", topic_id=B) for row in partitions),
        topics=(TopicState(topic="a", topic_id=B, configs=rows, deleted=False),),
    )


def test_a_topic_made_anew_does_not_begin_where_the_table_of_the_older_one_ends(
    tmp_path: Path,
) -> None:
    """It took office before the broker was told that the older one is gone: its offsets began
    there, and all below was looked for in a table that never was."""

    async def story(broker: SoloBroker) -> None:
        remote = MemoryRemoteLog("", lambda *_: None)
        where = TieredTopic("a", A, "memory")
        ends = TieredEnds(remote, lambda: broker.replicas, lambda name, topic_id: where)
        broker.replicas._ports = replace(broker.replicas._ports, tiered_end=ends.end)
        tell(broker, state())
        ends._ranges[A, 0] = TieredRange(0, 100)
        tell(broker, state(leader_epoch=2))
        assert broker.replicas.lookup("a", 0).log.log_end_offset == 100
        broker.replicas.apply_leader_and_isr(made_anew(state()))
        log = broker.replicas.lookup("a", 0).log
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (B, 0, 0)

    play(tmp_path, story)


def test_an_override_that_only_a_newer_controller_knows_keeps_no_topic_away(
    tmp_path: Path,
) -> None:
    async def story(broker: SoloBroker) -> None:
        request = made_anew(state(), retention_ms="5", of_a_later_version="on", segment_ms="soon")
        assert codes(broker.replicas.apply_leader_and_isr(request)) == [ErrorCode.NONE]
        config = broker.replicas.lookup("a", 0).log.config
        assert (config.retention_ms, config.segment_ms) == (5, 7 * 24 * 3600 * 1000)

    play(tmp_path, story)
