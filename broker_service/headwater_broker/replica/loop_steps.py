"""Long work on the loop, cut into steps: jobs for disk threads, and turns of the loop between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import TypeVar, cast

from headwater_broker.log.unified_log import UnifiedLog

Job = Callable[[], None]
T = TypeVar("T")
LoopSteps = Generator[Job | None, None, T]
"""Yields a job that must be done before the next step, or None to give the loop a turn."""


def run_now(steps: LoopSteps[T]) -> T:
    """Run all steps in one turn of the loop."""
    while True:
        try:
            job = next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        if job is not None:
            job()


async def run_in_turns(steps: LoopSteps[T], off_loop: Callable[[Job], Awaitable[None]]) -> T:
    """Run jobs by `off_loop`; give the loop a turn where a step yields None."""
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
    """Write the start of an epoch that this broker will lead, before the first append in it.

    Nothing may be appended meanwhile. Raises KafkaError when the disk fails.
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
    if log.epochs.entries != written:  # retention has written a newer state meanwhile
        log.save_epochs()
