"""The port `headwater.ports.remote_log` over Delta tables, by worker processes of low priority.

Runs in the broker and imports neither pyarrow nor deltalake: only the workers do
(`python -m headwater_tier.remote_log_worker`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import struct
import sys
from collections.abc import Sequence
from typing import Any

from headwater.ports.remote_log import (
    RemoteLogError,
    RemoteSlice,
    RemoteTimestamp,
    TieredRange,
    TieredTopic,
)
from headwater_tier.segment_cache import PIN_S, Segment, SegmentCache

CACHE_BYTES_MAX = 1 << 30
CALL_TIMEOUT_S = 60.0
"""A worker that has not answered within this time is killed and replaced."""
SOURCE_CHECK_S = 1.0
"""How long a cached segment is served before its worker checks that the table's files still exist:
a cached copy must not hide that files were deleted."""
ANSWER_BYTES_MAX = 64 << 20
_LENGTH = struct.Struct(">I")


class WorkerLostError(RemoteLogError):
    """The worker process exited or hung during a request."""


class DeltaRemoteLog:
    """`RemoteLog` over worker processes, with a disk cache of rebuilt segments in `cache_dir`."""

    def __init__(
        self,
        cache_dir: str,
        *,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        workers: int = 1,
        python: str = sys.executable,
        call_timeout_s: float = CALL_TIMEOUT_S,
        source_check_s: float = SOURCE_CHECK_S,
    ) -> None:
        """The first call starts a worker. `cache_dir` must hold nothing else: it is emptied."""
        self._source_check_s = source_check_s
        self._cache_dir = cache_dir
        self._cache = SegmentCache(cache_bytes_max)
        self._workers = [_Worker(python, call_timeout_s) for _ in range(workers)]
        self._building: dict[tuple[str, int, int], asyncio.Task[Segment]] = {}
        self._numbers = itertools.count()
        self._is_ready = False

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the running workers."""
        return [pid for worker in self._workers if (pid := worker.pid) is not None]

    async def ranges(self, topic: TieredTopic) -> dict[int, TieredRange]:
        """See `RemoteLog`."""
        answer = await self._ask(topic, "ranges")
        return {int(p): TieredRange(start, end) for p, (start, end) in answer.items()}

    async def read(
        self, topic: TieredTopic, partition: int, offset: int, max_bytes: int
    ) -> RemoteSlice:
        """See `RemoteLog`. The file stays for 5 s at least: the caller must open it within them."""
        segment = self._found(topic, partition, offset)
        if segment is not None:
            now = asyncio.get_running_loop().time()
            if now - segment.checked_at > self._source_check_s:
                await self._check_sources(topic, segment, now)
                segment = self._found(topic, partition, offset)
        if segment is None:
            segment = await self._built(topic, partition, offset)
        position, size_bytes, next_offset = segment.cut(offset, max_bytes)
        if next_offset == segment.end_offset:
            self._read_ahead(topic, partition, next_offset)
        return RemoteSlice(segment.path, position, size_bytes, next_offset)

    async def find_timestamp(
        self, topic: TieredTopic, partition: int, timestamp_ms: int, start: int, end: int
    ) -> RemoteTimestamp | None:
        """See `RemoteLog`."""
        more = {"timestamp_ms": timestamp_ms, "start": start, "end": end}
        answer = await self._ask(topic, "find", partition=partition, **more)
        return None if answer is None else RemoteTimestamp(*answer)

    async def close(self) -> None:
        """See `RemoteLog`."""
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self._workers:
            await worker.stop()
        shutil.rmtree(self._cache_dir, ignore_errors=True)

    async def _built(self, topic: TieredTopic, partition: int, offset: int) -> Segment:
        """Rebuild the segment that covers `offset`; concurrent reads share one rebuild."""
        key = (topic.table_uri, partition, offset)
        task = self._building.get(key)
        if task is None:
            task = asyncio.create_task(self._build(topic, partition, offset))
            self._building[key] = task
            task.add_done_callback(lambda _: self._building.pop(key, None))
        return await asyncio.shield(task)

    async def _build(self, topic: TieredTopic, partition: int, offset: int) -> Segment:
        path = os.path.join(self._prepared_dir(), f"{next(self._numbers)}.log")
        answer = await self._ask(topic, "build", partition=partition, offset=offset, path=path)
        sizes = [size for _, size in answer["batches"]]
        segment = Segment(
            table=topic.table_uri,
            partition=partition,
            path=path,
            end_offset=answer["end"],
            bases=[base for base, _ in answer["batches"]],
            positions=list(itertools.accumulate(sizes, initial=0)),
            sources=tuple(answer["sources"]),
        )
        self._delete_later(self._cache.add(segment, asyncio.get_running_loop().time()))
        return segment

    def _found(self, topic: TieredTopic, partition: int, offset: int) -> Segment | None:
        now = asyncio.get_running_loop().time()
        return self._cache.find(topic.table_uri, partition, offset, now)

    async def _check_sources(self, topic: TieredTopic, segment: Segment, now: float) -> None:
        """Drop a segment if a file of it is gone: by compaction, or deleted (the read fails)."""
        segment.checked_at = now
        missing = await self._ask(topic, "check", paths=segment.sources)
        if missing and self._cache.holds(segment):
            self._delete_later([self._cache.drop(segment)])

    def _read_ahead(self, topic: TieredTopic, partition: int, offset: int) -> None:
        """Rebuild the segment after this one for a sequential reader, if no rebuild is running."""
        if self._building or self._found(topic, partition, offset):
            return
        key = (topic.table_uri, partition, offset)
        task = asyncio.create_task(self._build(topic, partition, offset))
        self._building[key] = task

        def done(ended: asyncio.Task[Segment]) -> None:
            self._building.pop(key, None)
            if not ended.cancelled():
                ended.exception()  # the table's end, or an error that a read will meet too

        task.add_done_callback(done)

    async def _ask(self, topic: TieredTopic, do: str, **more: Any) -> Any:
        request = {
            "do": do,
            "uri": topic.table_uri,
            "topic": topic.topic,
            "topic_id": str(topic.topic_id),
            "options": topic.storage_options,
            **more,
        }
        worker = min(self._workers, key=lambda w: w.waiting)
        try:
            return await worker.ask(request)
        except WorkerLostError:
            return await worker.ask(request)  # on the new process that this call starts

    def _prepared_dir(self) -> str:
        if not self._is_ready:
            shutil.rmtree(self._cache_dir, ignore_errors=True)
            try:
                os.makedirs(self._cache_dir, exist_ok=True)
            except OSError as error:
                text = f"the cache folder {self._cache_dir} cannot be made: {error}"
                raise RemoteLogError(text) from error
            self._is_ready = True
        return self._cache_dir

    def _delete_later(self, paths: Sequence[str]) -> None:
        """Delete files after PIN_S: a reader that got one of them may not have opened it yet."""
        if paths:
            asyncio.get_running_loop().call_later(PIN_S, _delete, paths)


def _delete(paths: Sequence[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue  # `close` has removed the folder


class _Worker:
    """One worker process, started by the first request and after each exit."""

    def __init__(self, python: str, timeout_s: float) -> None:
        self._python = python
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count()
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        return None if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """The number of unanswered requests."""
        return len(self._answers)

    async def ask(self, request: dict[str, Any]) -> Any:
        """The answer to a request. Raises RemoteLogError; WorkerLostError without an answer."""
        process = await self._running()
        number = next(self._ids)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        data = json.dumps({"id": number, **request}).encode()
        try:
            assert process.stdin is not None
            process.stdin.write(_LENGTH.pack(len(data)) + data)
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError:
            process.kill()
            raise WorkerLostError(
                f"reading {request['uri']} took longer than {self._timeout_s:.0f} s"
            ) from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerLostError(f"the tier worker has exited: {error}") from error
        finally:
            self._answers.pop(number, None)

    async def stop(self) -> None:
        """Kill the process and wait for its end."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            process = self._process
            if process is None or process.returncode is not None:
                process = await asyncio.create_subprocess_exec(
                    self._python,
                    "-P",  # a user's file in the working directory must not shadow a module
                    "-m",
                    "headwater_tier.remote_log_worker",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,  # a terminal's Ctrl-C must reach only the broker
                )
                self._process = process
                self._reading = asyncio.create_task(self._read_answers(process))
            return process

    async def _read_answers(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while True:
                size = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))[0]
                if size > ANSWER_BYTES_MAX:
                    raise ValueError(f"an answer of {size} bytes")
                self._deliver(json.loads(await process.stdout.readexactly(size)))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass  # the process has ended: all waiting requests fail below
        except (ValueError, KeyError):
            process.kill()  # invalid output; the next request starts a new process
        code = await process.wait()
        for waiting in list(self._answers.values()):
            if not waiting.done():
                waiting.set_exception(WorkerLostError(f"the tier worker exited with {code}"))

    def _deliver(self, answer: dict[str, Any]) -> None:
        waiting = self._answers.get(answer["id"])
        if waiting is None or waiting.done():
            return
        if "error" in answer:
            waiting.set_exception(RemoteLogError(answer["error"]))
        else:
            waiting.set_result(answer["result"])
