"""A recreated topic inherits nothing from the log of the deleted topic of its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater.wire.control import (
    ConfigEntry,
    LeaderAndIsrReply,
    PartitionState,
    TopicState,
)
from solo_broker import SoloBroker
from unit.replica.test_manager import A, B, codes, play, state, stop, tell


def make(
    broker: SoloBroker, topic_id: UUID, *partitions: PartitionState, **overrides: str
) -> LeaderAndIsrReply:
    """A topic called `a` of this id, with these overrides."""
    configs = tuple(ConfigEntry(name=k.replace("_", "."), value=v) for k, v in overrides.items())
    rows = (replace(row, topic="a", topic_id=topic_id) for row in partitions)
    topic = TopicState(topic="a", topic_id=topic_id, configs=configs, deleted=False)
    return tell(broker, *rows, topics=(topic,))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_topic_made_again_keeps_its_own_overrides(tmp_path: Path, partitions: int) -> None:
    """LeaderAndIsr of the new topic comes before StopReplica of the old one: both waited together,
    or the broker registered anew meanwhile."""
    old_states = [state(partition=index) for index in range(partitions)]

    async def story(broker: SoloBroker) -> None:
        made = make(broker, A, *old_states, segment_bytes="1000000")
        assert set(codes(made)) == {ErrorCode.NONE}
        assert codes(make(broker, B, state(), segment_bytes="2000000")) == [ErrorCode.NONE]
        new = broker.replicas.lookup("a", 0)
        assert new.topic_id == B
        assert new.log.config.segment_bytes == 2_000_000
        gone = stop(broker, A, delete=True, partitions=partitions)
        assert set(codes(gone)) == {ErrorCode.NONE}
        broker.replicas.update_log_configs()  # as when a default of the brokers changes
        assert new.log.config.segment_bytes == 2_000_000
        broker.replicas.update_topic_configs(B, {})
        assert new.log.config.segment_bytes == 1 << 30

    play(tmp_path, story)


def test_the_log_that_gave_way_goes_when_its_topics_deletion_comes(tmp_path: Path) -> None:
    """It was set aside, and stayed for ever: the deletion found no log of that topic any more."""

    def endings(broker: SoloBroker, partition: int) -> list[str]:
        (folder, _, _) = broker.logs.by_folder()[0]
        found = broker.files.names(folder)
        return [name.rpartition("-")[2] for name in found if name.startswith(f"a-{partition}")]

    async def story(broker: SoloBroker) -> None:
        make(broker, A, state(), state(partition=1))
        make(broker, B, state(), state(partition=1))
        assert [endings(broker, index) for index in (0, 1)] == [["0", "stray"], ["1", "stray"]]
        assert codes(stop(broker, A, delete=False)) == [ErrorCode.NONE]
        assert endings(broker, 0) == ["0", "stray"]
        assert codes(stop(broker, A, delete=True)) == [ErrorCode.NONE]
        assert endings(broker, 0) == ["0", "delete"]
        assert endings(broker, 1) == ["1", "stray"], "nobody said that it may go"
        assert broker.replicas.lookup("a", 0).topic_id == B

    play(tmp_path, story)


def test_a_topic_made_anew_does_not_begin_where_the_table_of_the_older_one_ends(
    tmp_path: Path,
) -> None:
    """It became leader before the broker was told that the older one is gone: its offsets began
    there, and all below was looked for in a table that never was."""

    async def story(broker: SoloBroker) -> None:
        tell(broker, state())
        broker.tiered_ends[A, 0] = 100
        tell(broker, state(leader_epoch=2))
        assert broker.replicas.lookup("a", 0).log.log_end_offset == 100
        make(broker, B, state())
        log = broker.replicas.lookup("a", 0).log
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (B, 0, 0)

    play(tmp_path, story)


def test_an_override_that_only_a_newer_controller_knows_keeps_no_topic_away(
    tmp_path: Path,
) -> None:
    async def story(broker: SoloBroker) -> None:
        made = make(
            broker, B, state(), retention_ms="5", of_a_later_version="on", segment_ms="soon"
        )
        assert codes(made) == [ErrorCode.NONE]
        config = broker.replicas.lookup("a", 0).log.config
        assert (config.retention_ms, config.segment_ms) == (5, 7 * 24 * 3600 * 1000)

    play(tmp_path, story)
