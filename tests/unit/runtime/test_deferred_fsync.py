"""Renames of the loop: the fsync comes later, or as soon as somebody waits for it."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater_broker.runtime import deferred_fsync
from headwater_broker.runtime.deferred_fsync import DeferredFsyncFiles


def test_who_waits_for_a_rename_waits_for_its_fsync_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = deferred_fsync._sync

    def note(path: str, flags: int) -> None:
        sync(path, flags)
        synced.append(os.path.basename(path))

    monkeypatch.setattr(deferred_fsync, "_sync", note)
    monkeypatch.setattr(deferred_fsync, "GATHER_S", 3600.0)

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            files = DeferredFsyncFiles(pool)
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
