"""`__consumer_offsets` refuses offsets of fenced producers, on a real log."""

from __future__ import annotations

from pathlib import Path

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.coordinator.group.offset_commands import TransactionalCommit
from headwater_broker.coordinator.group.offsets import Commit
from solo_broker import SoloBroker
from unit.coordinator.test_runtime import code_of
from unit.coordinator.transactional_groups import GROUP, T, TransactionCoordinator
from unit.network.test_data_plane import serve


def commit_of(producer: Producer, offset: int) -> TransactionalCommit:
    return TransactionalCommit(
        group_id=GROUP,
        transactional_id="app",
        producer=producer,
        is_enlisting=True,
        rows=(Commit(*T, offset, -1, ""),),
    )


def test_an_older_epoch_is_refused_though_the_transaction_coordinator_allows_it(
    tmp_path: Path,
) -> None:
    """A coordinator that has lost its leadership without knowing may allow a fenced producer."""

    async def story(broker: SoloBroker, _c: Connection) -> None:
        offsets_id = broker.create_topic(OFFSETS_TOPIC, 1)
        groups, allowing = broker.services.groups, TransactionCoordinator(offsets_id)
        old, new = Producer(7, 3), Producer(7, 4)
        runtime = groups.coordinator.runtime
        assert await groups.transactional_commit(commit_of(old, 5), allowing) == {T: 0}
        shard = runtime.shard(0)
        await runtime.end_transaction(0, 7, new.producer_epoch, 1, commit=True)
        assert (await groups.fetch(GROUP, (T,)))[T].offset == 5
        late = groups.transactional_commit(commit_of(old, 6), allowing)
        assert await code_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await groups.transactional_commit(commit_of(new, 7), allowing) == {T: 0}
        late = groups.transactional_commit(commit_of(old, 8), allowing)
        assert await code_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert runtime.shard(0) is shard, "refused before anything was replayed"
        await runtime.end_transaction(0, 7, new.producer_epoch + 1, 1, commit=True)
        assert (await groups.fetch(GROUP, (T,)))[T].offset == 7

    serve(tmp_path, story)


def test_a_marker_of_an_older_epoch_ends_nothing(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, _c: Connection) -> None:
        offsets_id = broker.create_topic(OFFSETS_TOPIC, 1)
        groups, allowing = broker.services.groups, TransactionCoordinator(offsets_id)
        runtime = groups.coordinator.runtime
        await groups.transactional_commit(commit_of(Producer(7, 3), 5), allowing)
        late = runtime.end_transaction(0, 7, 2, 1, commit=True)
        assert await code_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert allowing.coordinator_epoch == -1
        stable = (await groups.fetch(GROUP, (T,), require_stable=True))[T]
        assert stable.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await runtime.end_transaction(0, 7, 3, 1, commit=False)
        assert (await groups.fetch(GROUP, (T,), require_stable=True))[T].offset == -1
        await groups.transactional_commit(commit_of(Producer(7, 3), 6), allowing)
        assert allowing.coordinator_epoch == 1, "of the marker: a deposed coordinator has a lower"

    serve(tmp_path, story)
