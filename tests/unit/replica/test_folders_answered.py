"""LeaderAndIsr responses while a replica moves between log dirs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from solo_broker import SoloBroker
from unit.replica.test_manager import state, tell


def test_leader_and_isr_is_answered_with_the_folder_that_a_move_was_told_to_end_in(
    tmp_path: Path,
) -> None:
    """The controller takes the answer for news: it would believe the replica in the folder that it
    leaves in the next moment."""
    folders = [f"{tmp_path}/a", f"{tmp_path}/b"]

    async def story() -> None:
        async with SoloBroker(tmp_path, log_dirs=",".join(folders)) as broker:
            [row] = tell(broker, state()).partitions
            key, own, futures = ("a", 0), row.directory_id, broker.logs.futures
            path = next(p for p in folders if futures.directory(p).directory_id != own)
            creation = futures.plan(key, path)
            creation.run()
            future = futures.add(creation)
            assert future is not None
            assert tell(broker, state()).partitions[0].directory_id == own
            futures.announced[key] = future.directory_id
            assert tell(broker, state()).partitions[0].directory_id == future.directory_id != own
            futures.drop(key)
            assert tell(broker, state()).partitions[0].directory_id == own

    asyncio.run(story())
