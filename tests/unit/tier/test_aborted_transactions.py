"""A Delta table has the records of committed transactions, from a broker's real fetches."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from headwater.client.blocking.record_client import LATEST, READ_COMMITTED, RecordClient
from headwater_broker.log.results import AppendOrigin
from headwater_broker.replica.marker_writer import TransactionMarker
from headwater_broker.replica.partition import Partition
from headwater_spark.tiering.task import TierTask, run_task
from headwater_tier.commit import ensure_table
from headwater_tier.offset_ranges import PartitionBounds, TierRange, plan_ranges
from headwater_tier.table_names import TableLocation, table_uri
from solo_broker import SoloBroker
from unit.log.harness import batch

PRODUCERS = 5
STEPS = 150
CONFIGS = {"segment.bytes": "2000", "index.interval.bytes": "300"}


class Story:
    """Transactions that overlap on one partition, and the offsets that must be in the table."""

    def __init__(self, broker: SoloBroker, seed: int) -> None:
        self.broker = broker
        self.topic_id = broker.create_topic("t", configs=CONFIGS)
        self.partition: Partition = broker.replicas.lookup("t", 0)
        self.committed: set[int] = set()
        self.chance = random.Random(seed)
        self._open: dict[int, list[int]] = {}
        self._epochs = dict.fromkeys(range(PRODUCERS), 0)

    def write(self, pid: int) -> None:
        rows = self._open.setdefault(pid, [])
        data = batch(
            self.chance.randint(1, 3), producer_id=pid, epoch=self._epochs[pid],
            sequence=0, transactional=True,
        )  # fmt: skip
        now_ms = self.broker.services.clock.now_ms()
        done = self.partition.append(data, 1, now_ms, AppendOrigin.COORDINATOR)
        rows += range(done.base_offset, done.last_offset + 1)

    async def end(self, pid: int, *, commit: bool) -> None:
        self._epochs[pid] += 1
        marker = TransactionMarker(pid, self._epochs[pid], commit, 0, 2, {("t", 0): UUID(int=0)})
        assert await self.broker.services.markers.write([marker]) == [{("t", 0): 0}]
        offsets = self._open.pop(pid)
        self.committed.update(offsets if commit else ())

    async def play(self) -> None:
        for _ in range(STEPS):
            pid = self.chance.randrange(PRODUCERS)
            if pid in self._open and self.chance.random() < 0.4:
                await self.end(pid, commit=self.chance.random() < 0.5)
            else:
                self.write(pid)

    async def settle(self) -> None:
        for pid in list(self._open):
            await self.end(pid, commit=self.chance.random() < 0.5)

    def tier(self, start: int, location: TableLocation) -> tuple[int, list[int]]:
        """As a tier job does it, in another thread: (end of the range, its offsets)."""
        servers = f"127.0.0.1:{self.broker.port}"
        with RecordClient(servers) as client:
            stable = client.list_offsets({("t", 0): LATEST}, READ_COMMITTED)["t", 0].offset
        ends = {0: start} if start else {}
        ranges = plan_ranges(ends, {0: PartitionBounds(0, stable)})
        if not ranges:
            return start, []
        assert ranges == (TierRange(0, ends.get(0), start, stable),)
        facts = run_task(TierTask(servers, location, ranges))
        if facts is None:
            return stable, []
        table = pq.read_table(Path(location.uri.removeprefix("file://")) / facts.path)
        return stable, table.column("offset").to_pylist()


@pytest.mark.parametrize("seed", range(4))
def test_no_row_of_an_aborted_or_open_transaction(tmp_path: Path, seed: int) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path / "broker") as broker:
            story = Story(broker, seed)
            location = TableLocation(
                table_uri(str(tmp_path / "tables"), "t", story.topic_id), "t", story.topic_id
            )
            await asyncio.to_thread(ensure_table, location, 1)
            end, found = 0, []
            for is_last in (False, False, True):
                await (story.settle() if is_last else story.play())
                stable = story.partition.last_stable_offset
                end, rows = await asyncio.to_thread(story.tier, end, location)
                found += rows
                assert end == stable
                assert found == sorted(o for o in story.committed if o < stable)
            assert end == story.partition.log.log_end_offset
            assert len(story.partition.log.segments) > 3
            assert len(story.partition.log.aborted_transactions(0, end)) > 10

    asyncio.run(run())
