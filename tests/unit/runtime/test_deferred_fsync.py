"""Files renamed on the loop: the fsync runs later, or at once when a caller waits for it."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headwater_broker.runtime.deferred_fsync import DeferredFsyncFiles, fsync_path


def test_who_waits_for_a_rename_waits_for_its_fsync_and_no_longer(tmp_path: Path) -> None:
    synced: list[str] = []

    def note(path: str, flags: int) -> None:
        fsync_path(path, flags)
        synced.append(os.path.basename(path))

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            files = DeferredFsyncFiles(pool, gather_s=3600.0, fsync=note)
            await files.durable()
            for name in ("a", "b"):
                (tmp_path / name / "log").mkdir(parents=True)
                files.rename(f"{tmp_path}/{name}/log", f"{tmp_path}/{name}/log-delete")
                assert name not in synced
                await asyncio.wait_for(files.durable(), 60)
                assert synced[-1] == name
            files.write_atomic(f"{tmp_path}/a/small", b"x")
            files.sync_all()
            assert sorted(synced[2:]) == ["a", "small"]

    asyncio.run(scenario())
