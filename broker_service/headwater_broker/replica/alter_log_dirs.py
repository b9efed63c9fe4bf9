"""Moves replicas between the log directories of this broker while they are served (KIP-113).

One copy at a time, a slice at a time: read in a disk thread, appended on the loop in short turns,
so that all copies together cost the loop no more than one follower. A copy follows its log in all:
it is truncated where the log is (by leader epochs, as a follower's), started again where the log
starts later, and its log start follows the log's. When a copy is nearly complete the rest is read
on the loop, where nothing is appended meanwhile; then the copy is made durable, the controller is
informed of the directory (KIP-858; before the swap, so that it never believes a replica safe in a
directory that the replica has left), and in one turn the copy takes the place of the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.log_creation import Key
from headwater_broker.log.log_manager import LogManager
from headwater_broker.replica.log_dir_copy import SLICE_BYTES, LogDirCopy
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replica_manager import ReplicaManager

FINAL_BYTES = 256 * 1024
"""Bytes that may be read and appended in the one turn of the loop that ends a move."""
RETRY_S = 0.25
"""Moves that wait (for a role, for the controller) are tried again after this."""
ASSIGN_TIMEOUT_MS = 5_000
"""How long the controller may take to store a directory; then the move is tried again."""

OffLoop = Callable[[Callable[[], None]], Awaitable[None]]
Assign = Callable[[UUID, int, UUID, int], Awaitable[ErrorCode]]
"""(topic id, partition, directory id, timeout in ms) -> the controller's answer."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MoveSizes:
    """How much of a log is copied at once."""

    slice_bytes: int = SLICE_BYTES
    final_bytes: int = FINAL_BYTES


class AlterLogDirsManager:
    """The moves under way (Kafka's ReplicaAlterLogDirsManager). All methods run on the loop."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        off_loop: OffLoop,
        assign: Assign,
        sizes: MoveSizes = MoveSizes(),
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._off_loop = off_loop
        self._assign = assign
        self._sizes = sizes
        self._copies: dict[Key, LogDirCopy] = {}
        self._announced = logs.futures.announced
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._alter_lock = asyncio.Lock()

    async def alter(self, topic: str, partition: int, path: str) -> None:
        """Move a replica to the log directory `path`, or create it there when it is assigned.

        Raises LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION (the topic name is
        too long for a future log), REPLICA_NOT_AVAILABLE (not here yet: the directory is kept).
        """
        key, futures = (topic, partition), self._logs.futures
        async with self._alter_lock:
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
                    f"{topic}-{partition} is not here; it will be created in {path} when it is "
                    "assigned",
                )
            if log.directory_id == directory.directory_id:
                return
            creation = futures.plan(key, path)
            dirty = log.first_dirty_offset
            await self._off_loop(creation.run)
            future = futures.add(creation)
            if future is None:
                raise KafkaError(
                    ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic}-{partition} was deleted"
                )
            future.first_dirty_offset = dirty
            _log.info("%s: moving to %s", log.path, path)
        self.tick()

    def tick(self) -> None:
        """Go on with the moves, unless they are under way. To be called once at start, too: there
        may be copies of the former life."""
        if self._is_due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def settle(self) -> None:
        """Return once every move is done, or waits for something; raises what ended the work."""
        if self._task is not None:
            await self._task

    @property
    def _is_due(self) -> bool:
        return bool(self._logs.futures.logs or self._announced)

    async def close(self) -> None:
        """Stop; copies stay, and are continued after the next start."""
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
                    await self._withdraw(key)
            for key in list(self._logs.futures.logs):
                try:
                    moved = await self._advance(key) or moved
                except KafkaError as error:
                    _log.error("%s-%d: the move is abandoned: %s", *key, error)
                    self._logs.futures.drop(key)
            futures = self._logs.futures.logs
            self._copies = {key: copy for key, copy in self._copies.items() if key in futures}
        if self._is_due:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self.tick)

    def _copy(self, key: Key, hosted: Partition) -> LogDirCopy:
        future = self._logs.futures.logs[key]
        copy = self._copies.get(key)
        if copy is None or copy.future is not future or copy.log is not hosted.log:
            size = self._sizes.slice_bytes
            copy = self._copies[key] = LogDirCopy(hosted.log, future, size)
        return copy

    async def _advance(self, key: Key) -> bool:
        """Copy one slice, or do one step of the end of a move; False: nothing to do now."""
        hosted = self._replicas.partitions.get(key)
        if key not in self._logs.futures.logs or hosted is None or hosted.offline_reason:
            return False
        copy = self._copy(key, hosted)
        copy.align(self._clock.now_ms())
        left = copy.bytes_left()
        if left and self._replicas.quotas.log_dirs.is_exceeded:
            return False
        self._replicas.quotas.log_dirs.record(min(left, self._sizes.slice_bytes))
        if left > self._sizes.final_bytes or not copy.is_near:
            copy.is_near = left <= self._sizes.slice_bytes
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
            return await self._inform_controller(key, hosted, copy.future.directory_id)
        if self._replicas.control_lock.locked():
            return False  # a leader epoch may be written to the old directory at this moment
        self._swap(key, hosted, copy)
        return True

    async def _copy_slice(self, key: Key, copy: LogDirCopy) -> None:
        job = copy.next_slice()
        await self._off_loop(job.run)
        while self._is_current(key, copy) and copy.append(job):
            await asyncio.sleep(0)

    def _is_current(self, key: Key, copy: LogDirCopy) -> bool:
        return self._logs.futures.logs.get(key) is copy.future and not copy.log.is_closed

    async def _inform_controller(self, key: Key, hosted: Partition, directory_id: UUID) -> bool:
        before = self._announced.get(key)
        self._announced[key] = directory_id  # the answer to LeaderAndIsr from now on
        is_known = await self._is_stored(key, hosted, directory_id)
        if self._replicas.partitions.get(key) is not hosted:  # it was of a deleted topic
            is_known, before = False, None
        if is_known:
            return True
        if before is None:
            del self._announced[key]
        else:
            self._announced[key] = before
        return False

    async def _is_stored(self, key: Key, hosted: Partition, directory_id: UUID) -> bool:
        try:
            code = await self._assign(
                hosted.topic_id, hosted.partition, directory_id, ASSIGN_TIMEOUT_MS
            )
        except KafkaError as error:
            _log.warning(
                "%s-%d: the controller could not be informed of its directory: %s", *key, error
            )
            return False
        if code is not ErrorCode.NONE:
            _log.warning("%s-%d: the controller rejects its directory: %s", *key, code.name)
            return False
        return True

    def _swap(self, key: Key, hosted: Partition, copy: LogDirCopy) -> None:
        copy.copy_epochs()
        try:
            hosted.use_log(self._logs.futures.put_in_place(key))
        except KafkaError as error:
            _log.error("%s-%d: not moved: %s", *key, error)
            return
        del self._announced[key]
        _log.info("%s: moved from %s", hosted.log.path, copy.log.path)

    async def _withdraw(self, key: Key) -> None:
        """A move ended without a swap after the controller was informed: correct it."""
        hosted = self._replicas.partitions.get(key)
        is_gone = hosted is None or hosted.storage_error
        if (
            hosted is None
            or is_gone
            or await self._inform_controller(key, hosted, hosted.log.directory_id)
        ):
            del self._announced[key]
