"""Long work of the loop as steps: jobs for the disk, and places where the loop may have a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import TypeVar, cast

from headwater_broker.log.unified_log import UnifiedLog

Job = Callable[[], None]
T = TypeVar("T")
LoopSteps = Generator[Job | None, None, T]
"""Gives a job that is to be done before it goes on, or None where others may have their turn."""


def run_now(steps: LoopSteps[T]) -> T:
    """All steps in one turn of the loop."""
    while True:
        try:
            job = next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        if job is not None:
            job()


async def run_in_turns(steps: LoopSteps[T], off_loop: Callable[[Job], Awaitable[None]]) -> T:
    """Jobs run by `off_loop`; where a step gives None the loop has a turn."""
    with closing(steps):
        while True:
            try:
                job = next(steps)
            except StopIteration as end:
                return cast(T, end.value)
            if job is None:
                await asyncio.sleep(0)
            else:
                await off_loop(job)


def begin_epoch(log: UnifiedLog, epoch: int) -> LoopSteps[None]:
    """The start of an epoch that we shall lead, on disk before the first append of it.

    Nobody may append meanwhile. Raises KafkaError when the disk fails.
    """
    log.epochs.assign(epoch, log.log_end_offset)
    if not log.epochs.changed:
        return
    failed: list[OSError] = []
    written, write = log.epochs.entries, log.epochs_writer()

    def job() -> None:
        try:
            write()
        except OSError as error:
            failed.append(error)

    yield job
    for error in failed:
        log.epochs.changed = True
        raise log.storage_error(error)
    if log.epochs.entries != written:  # retention has saved a newer state meanwhile
        log.save_epochs()
