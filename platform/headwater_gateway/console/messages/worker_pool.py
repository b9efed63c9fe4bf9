"""The gateway's side of the workers: two warm processes, replaced when one ends.

They are forked from a process that has the libraries loaded and holds no connection and no secret
(multiprocessing's fork server), so that a new one is there within milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import pickle
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_int64
from typing import Any

from headwater.client.values import ConsumerRecord
from headwater.errors import HeadwaterError, UsageError
from headwater_gateway.console.messages import worker
from headwater_gateway.console.messages.jobs import Counts, Job, Judged, Rendered, WorkerEndedError
from headwater_tier.typed.decoding import SchemaSource

WORKERS = 2
CHUNK_S_MAX = 30.0
END_S_MAX = 5.0
PRELOADED = "headwater_gateway.console.messages.worker"
log = logging.getLogger(__name__)


class WorkerProcess:
    """One process and the socket to it. One request at a time."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._process: Any = None
        self._at: Any = None
        self._known: set[int] = set()

    async def start(self) -> None:
        """Fork it."""
        ours, theirs = socket.socketpair()
        self._at = self._context.RawValue(c_int64, -1)
        self._process = self._context.Process(
            target=worker.run_worker, args=(theirs, self._at), daemon=True
        )
        try:
            await asyncio.to_thread(self._process.start)
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)

    async def ask(
        self,
        kind: str,
        number: int,
        job: Job,
        records: Sequence[ConsumerRecord],
        schemas: SchemaSource,
    ) -> dict[str, Any]:
        """The answer. Raises WorkerEndedError, UsageError."""
        told = None if number in self._known else job
        self._known.add(number)
        try:
            async with asyncio.timeout(CHUNK_S_MAX):
                await self._send((kind, number, told, list(records)))
                while True:
                    answer = await self._receive()
                    if "schema" not in answer and "subject" not in answer:
                        break
                    await self._send(await asyncio.to_thread(_looked_up, schemas, answer))
        except TimeoutError:
            raise WorkerEndedError(
                self._at.value, f"it took more than {CHUNK_S_MAX:.0f} s"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            raise WorkerEndedError(self._at.value, await self._cause()) from None
        if "refused" in answer:
            raise UsageError(answer["refused"])
        return answer

    async def end(self) -> None:
        """Kill it."""
        self._writer.close()
        self._process.kill()
        await asyncio.to_thread(self._process.join, END_S_MAX)

    async def _send(self, request: Any) -> None:
        data = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        self._writer.write(worker.LENGTH.pack(len(data)))
        self._writer.write(data)
        await self._writer.drain()

    async def _receive(self) -> dict[str, Any]:
        size = worker.LENGTH.unpack(await self._reader.readexactly(worker.LENGTH.size))[0]
        answer: dict[str, Any] = json.loads(await self._reader.readexactly(size))
        return answer

    async def _cause(self) -> str:
        await asyncio.to_thread(self._process.join, END_S_MAX)
        code = self._process.exitcode
        if code == -signal.SIGPROF:
            return f"it took more than {worker.RECORD_CPU_S_MAX * 1000:.0f} ms"
        if code in (worker.OUT_OF_MEMORY, -signal.SIGKILL):
            return f"it took more than {worker.MEMORY_BYTES_MAX >> 20} MiB of memory"
        return f"its worker ended with code {code}"


class WorkerPool:
    """Hands chunks to whichever process is free. Of one event loop."""

    def __init__(self, size: int = WORKERS) -> None:
        self._size = size
        self._context = multiprocessing.get_context("forkserver")
        self._free: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._all: set[WorkerProcess] = set()
        self._number = 0
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to start the processes; requests wait for them."""
        self._context.set_forkserver_preload([PRELOADED])
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
        answer = await self._ask("detail", self.new_job(), job, [record], schemas)
        detail: dict[str, Any] = answer["detail"]
        return detail

    async def _ask(self, kind: str, number: int, *rest: Any) -> dict[str, Any]:
        process = await self._free.get()
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


def _looked_up(schemas: SchemaSource, question: dict[str, Any]) -> tuple[Any, str]:
    """(the schema or None, the problem or nothing)."""
    lookup: Callable[[Any], Any] = schemas.by_id if "schema" in question else schemas.latest
    try:
        return lookup(question.get("schema", question.get("subject"))), ""
    except HeadwaterError as error:
        return None, str(error)
