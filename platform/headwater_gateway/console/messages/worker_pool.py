"""The two warm workers that decode and filter, replaced when one ends."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_int64
from typing import Any

from headwater.client.values import ConsumerRecord
from headwater.errors import HeadwaterError, UsageError
from headwater_gateway.console.messages import worker
from headwater_gateway.console.messages.jobs import Counts, Job, Judged, Rendered, WorkerEndedError
from headwater_gateway.console.processes.channel import OUT_OF_MEMORY
from headwater_gateway.console.processes.child import ChildEndedError, ChildProcess, fork_server
from headwater_tier.typed.decoding import SchemaSource

WORKERS = 2
CHUNK_S_MAX = 30.0
FREE_S_MAX = 60.0
log = logging.getLogger(__name__)


class NoWorkerError(HeadwaterError):
    """All workers are busy, or none starts."""


class WorkerProcess:
    """One worker."""

    def __init__(self, context: Any) -> None:
        self._at = context.RawValue(c_int64, -1)
        self._child = ChildProcess(context, worker.run_worker, self._at)
        self._known: set[int] = set()

    async def start(self) -> None:
        """Fork it."""
        await self._child.start()

    async def ask(
        self,
        kind: str,
        number: int,
        job: Job,
        records: Sequence[ConsumerRecord],
        schemas: SchemaSource,
    ) -> dict[str, Any]:
        """The answer. Raises WorkerEndedError, UsageError."""
        sent_job = None if number in self._known else job
        request = (kind, number, sent_job, list(records))
        try:
            answer = await self._child.ask(request, schemas, CHUNK_S_MAX)
        except ChildEndedError as error:
            raise WorkerEndedError(self._at.value, _cause(error)) from None
        self._known.add(number)
        return answer

    async def end(self) -> None:
        """Kill it."""
        await self._child.end()


def _cause(error: ChildEndedError) -> str:
    if error.exit_code == -signal.SIGPROF:
        return f"it took more than {worker.RECORD_CPU_S_MAX * 1000:.0f} ms"
    if error.exit_code in (OUT_OF_MEMORY, -signal.SIGKILL):
        return f"it took more than {worker.MEMORY_BYTES_MAX >> 20} MiB of memory"
    return str(error)


class WorkerPool:
    """Hands chunks to whichever process is free. Of one event loop."""

    def __init__(self, size: int = WORKERS) -> None:
        self._size = size
        self._context = fork_server()
        self._free: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._all: set[WorkerProcess] = set()
        self._number = 0
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start the processes, unless they are there: requests wait for them."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start_all(), name="message-workers")

    async def _start_all(self) -> None:
        for _ in range(self._size):
            await self._add()

    async def close(self) -> None:
        """End all processes."""
        if self._starting is not None:
            with suppress(asyncio.CancelledError):
                await self._starting
        for one in self._all:
            await one.end()
        self._all.clear()

    def new_job(self) -> int:
        """A number that names a job to the processes."""
        self._number += 1
        return self._number

    async def judge(
        self, number: int, job: Job, records: Sequence[ConsumerRecord], schemas: SchemaSource
    ) -> Judged:
        """Decode, filter and render a chunk. Raises WorkerEndedError, UsageError."""
        answer = await self._ask("chunk", number, job, records, schemas)
        rows = [Rendered(*row) for row in answer["rows"]]
        return Judged(Counts(**answer["counts"]), rows)

    async def detail(
        self, job: Job, record: ConsumerRecord, schemas: SchemaSource
    ) -> dict[str, Any]:
        """All of one record. Raises WorkerEndedError, UsageError."""
        try:
            answer = await self._ask("detail", self.new_job(), job, [record], schemas)
        except WorkerEndedError as error:
            text = f"the record is too large to be shown in full ({error.cause}): take its bytes"
            raise WorkerEndedError(0, text) from None
        detail: dict[str, Any] = answer["detail"]
        return detail

    async def _ask(self, kind: str, number: int, *rest: Any) -> dict[str, Any]:
        self.start()
        try:
            async with asyncio.timeout(FREE_S_MAX):
                process = await self._free.get()
        except TimeoutError:
            raise NoWorkerError(f"no worker was free for {FREE_S_MAX:.0f} s: ask again") from None
        is_whole = False
        try:
            answer = await process.ask(kind, number, *rest)
            is_whole = True
            return answer
        except UsageError:
            is_whole = True
            raise
        finally:
            if is_whole:
                self._free.put_nowait(process)
            else:  # it ended, or stands within an answer that nobody reads
                await asyncio.shield(self._replace(process))

    async def _replace(self, process: WorkerProcess) -> None:
        self._all.discard(process)
        await process.end()
        await self._add()

    async def _add(self) -> None:
        process = WorkerProcess(self._context)
        try:
            await process.start()
        except (OSError, EOFError) as error:
            log.error("a worker for messages does not start: %s", error)
            return
        self._all.add(process)
        self._free.put_nowait(process)
