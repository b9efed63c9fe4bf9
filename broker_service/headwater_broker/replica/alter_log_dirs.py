"""Moves replicas between the data folders of this broker while they are served (KIP-113).

One copy after the other, a slice at a time: read in a disk thread, appended on the loop in short
turns, so that all copies together cost the loop no more than one follower does. A copy follows its
log in all: cut where that was cut (by leader epochs, as a follower's), begun again where it begins
later, its start moved up with the log's. What is left when a copy is near its end is read on the
loop, where nobody appends meanwhile; then the copy is made durable, the controller is told of the
folder (KIP-858: before the swap, so that it never believes a replica safe in a folder that it has
left), and in one turn the copy takes the log's place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.log_creation import Key
from headwater_broker.log.log_manager import LogManager
from headwater_broker.replica.log_dir_copy import SLICE_BYTES, LogDirCopy
from headwater_broker.replica.manager import ReplicaManager
from headwater_broker.replica.partition import Partition

FINAL_BYTES = 256 * 1024
"""So much may be read and appended in the one turn of the loop that ends a move."""
RETRY_S = 0.25
"""What waits (for a role, the controller) is looked at again after so long."""
ASSIGN_TIMEOUT_MS = 5_000
"""How long the controller may take to learn of a folder before the move goes on without its end."""

OffLoop = Callable[[Callable[[], None]], Awaitable[None]]
Assign = Callable[[UUID, int, UUID, int], Awaitable[ErrorCode]]
"""(topic id, partition, directory id, timeout in ms) -> what the controller answers."""

_log = logging.getLogger(__name__)


class AlterLogDirsManager:
    """The moves under way. All methods run on the broker's loop."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        off_loop: OffLoop,
        assign: Assign,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._off_loop = off_loop
        self._assign = assign
        self._copies: dict[Key, LogDirCopy] = {}
        self._announced = logs.futures.announced
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._in_order = asyncio.Lock()

    async def alter(self, topic: str, partition: int, path: str) -> None:
        """Move a replica to the data folder `path`, or make it there when it comes.

        Raises LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION (its name leaves no
        room), REPLICA_NOT_AVAILABLE (not here yet: the folder is remembered).
        """
        key, futures = (topic, partition), self._logs.futures
        async with self._in_order:
            directory = futures.directory(path)
            hosted, log = self._replicas.partitions.get(key), self._logs.get(*key)
            if hosted is not None and hosted.storage_error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, hosted.offline_reason)
            under_way = futures.logs.get(key)
            if under_way is not None and under_way.directory_id == directory.directory_id:
                return
            if under_way is not None:
                futures.drop(key)
            if log is None or hosted is None:
                if log is None:
                    futures.prefer(key, path)
                raise KafkaError(
                    ErrorCode.REPLICA_NOT_AVAILABLE,
                    f"{topic}-{partition} is not here; it will be made in {path} when it comes",
                )
            if log.directory_id == directory.directory_id:
                return
            creation = futures.plan(key, path)
            dirty = log.first_dirty_offset
            await self._off_loop(creation.run)
            future = futures.add(creation)
            if future is None:
                raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic}-{partition} has gone")
            future.first_dirty_offset = dirty
            _log.info("%s: moving to %s", log.path, path)
        self.tick()

    def tick(self) -> None:
        """Go on with what waits, unless that is under way. Call once at start: copies may be left
        from the life before."""
        if self._is_due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def _is_due(self) -> bool:
        return bool(self._logs.futures.logs or self._announced)

    async def close(self) -> None:
        """Stop; copies stay as they are, and are gone on with after the next start."""
        if self._retry is not None:
            self._retry.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        moved = True
        while moved:
            moved = False
            for key in list(self._announced):
                if key not in self._logs.futures.logs:
                    await self._take_back(key)
            for key in list(self._logs.futures.logs):
                try:
                    moved = await self._advance(key) or moved
                except KafkaError as error:
                    _log.error("%s-%d: its move is given up: %s", *key, error)
                    self._logs.futures.drop(key)
            futures = self._logs.futures.logs
            self._copies = {key: copy for key, copy in self._copies.items() if key in futures}
        if self._is_due:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self.tick)

    def _copy(self, key: Key, hosted: Partition) -> LogDirCopy:
        future = self._logs.futures.logs[key]
        copy = self._copies.get(key)
        if copy is None or copy.future is not future or copy.log is not hosted.log:
            copy = self._copies[key] = LogDirCopy(hosted.log, future)
        return copy

    async def _advance(self, key: Key) -> bool:
        """One slice of one copy, or a step of its end; False: nothing to do now."""
        hosted = self._replicas.partitions.get(key)
        if key not in self._logs.futures.logs or hosted is None or hosted.offline_reason:
            return False
        copy = self._copy(key, hosted)
        copy.align(self._clock.now_ms())
        left = copy.bytes_left()
        if left and self._replicas.quotas.log_dirs.is_exceeded:
            return False
        self._replicas.quotas.log_dirs.record(min(left, SLICE_BYTES))
        if left > FINAL_BYTES or not copy.is_near:
            copy.is_near = left <= SLICE_BYTES
            await self._copy_slice(key, copy)
            return True
        copy.catch_up()
        if not copy.is_flushed:
            await copy.flush()
            self._logs.checkpoint_recovery_points()
            self._logs.checkpoint_log_starts()
            self._logs.checkpoint_cleaned()
            return True
        if self._announced.get(key) != copy.future.directory_id:
            return await self._tell(key, hosted, copy.future.directory_id)
        if self._replicas.in_order.locked():
            return False  # a leader epoch is perhaps being written to the folder that is left
        self._swap(key, hosted, copy)
        return True

    async def _copy_slice(self, key: Key, copy: LogDirCopy) -> None:
        job = copy.next_slice()
        await self._off_loop(job.run)
        while self._is_current(key, copy) and copy.take(job):
            await asyncio.sleep(0)

    def _is_current(self, key: Key, copy: LogDirCopy) -> bool:
        return self._logs.futures.logs.get(key) is copy.future and not copy.log.is_closed

    async def _tell(self, key: Key, hosted: Partition, directory_id: UUID) -> bool:
        before = self._announced.get(key)
        self._announced[key] = directory_id  # what LeaderAndIsr is answered with from now on
        is_known = await self._is_taken(key, hosted, directory_id)
        if self._replicas.partitions.get(key) is not hosted:  # it was told of a topic that is gone
            is_known, before = False, None
        if is_known:
            return True
        if before is None:
            del self._announced[key]
        else:
            self._announced[key] = before
        return False

    async def _is_taken(self, key: Key, hosted: Partition, directory_id: UUID) -> bool:
        try:
            code = await self._assign(
                hosted.topic_id, hosted.partition, directory_id, ASSIGN_TIMEOUT_MS
            )
        except KafkaError as error:
            _log.warning("%s-%d: the controller is to know of its folder: %s", *key, error)
            return False
        if code is not ErrorCode.NONE:
            _log.warning("%s-%d: the controller refuses its folder: %s", *key, code.name)
            return False
        return True

    def _swap(self, key: Key, hosted: Partition, copy: LogDirCopy) -> None:
        copy.take_epochs()
        try:
            hosted.use_log(self._logs.futures.put_in_place(key))
        except KafkaError as error:
            _log.error("%s-%d: not moved: %s", *key, error)
            return
        del self._announced[key]
        _log.info("%s: moved from %s", hosted.log.path, copy.log.path)

    async def _take_back(self, key: Key) -> None:
        """A copy that the controller was told of has ended without taking its log's place."""
        hosted = self._replicas.partitions.get(key)
        is_gone = hosted is None or hosted.storage_error
        if hosted is None or is_gone or await self._tell(key, hosted, hosted.log.directory_id):
            del self._announced[key]
