"""The fetch loop for one leader broker: fetch, append, fetch again (Kafka's ReplicaFetcherThread).

One loop per leader broker, one connection, one fetch in flight. Kafka's `num.replica.fetchers` has
no counterpart: one loop fills the one core of this broker.

A loop may follow thousands of partitions and looks only at those that are *due*: new partitions,
those that an answer named, that lag or are delayed, or that reported a change (`CaughtUpFollower`).

When partitions are added while the leader delays a fetch, the connection is dropped and a new one
names them at once: waiting for the delayed fetch would cost up to replica.fetch.wait.max.ms, just
when a failed-over partition waits for its followers. A new connection names all partitions again,
so for a while after that fetches are delayed only shortly, and partitions added meanwhile wait for
the next fetch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from math import inf
from uuid import UUID

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.network import Connect, PeerConnection
from headwater.wire.schema import SchemaError
from headwater_broker.replica.caught_up_followers import OWN_FETCHER
from headwater_broker.replica.follower import (
    SESSION_ERRORS,
    FetchSession,
    Key,
    Reaction,
    pause_ms,
    reaction,
)
from headwater_broker.replica.follower_fetch_codec import (
    FETCH_VERSION,
    FetchedPartition,
    FetchHead,
    FetchReply,
    PartitionFetch,
    pack_fetch,
    parse_fetch,
)
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.replication_quota import ReplicationQuota
from headwater_broker.replica.truncation import truncation

_log = logging.getLogger(__name__)

CPU_SLICE_S = 0.001
"""Work on one reply after which the loop gets a turn."""
BATCHES_PER_TURN = 128
"""Small batches appended in one turn of the loop: about a millisecond."""
REPLY_BYTES_MAX = 2 * 1024 * 1024
"""Most bytes of one fetch, even if replica.fetch.response.max.bytes allows more: a larger reply
costs the loop milliseconds for its memory alone, and is no cheaper per byte."""
THROTTLE_PAUSE_S = 0.1
"""A partition that was left out for its quota is looked at again after this."""
EAGER_S = 1.0
"""More partitions may be added for this long after the last one: a thousand topics created one by
one must not drop a thousand connections."""
EAGER_WAIT_MS = 50
"""How long fetches are delayed meanwhile: the wait of a partition that is added then."""
ANSWER_GRACE_S = 10.0
"""How much longer than max_wait_ms a reply may take before the connection is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherPorts:
    """The parts of the broker that a fetch loop uses."""

    broker_id: int
    broker_epoch: Callable[[], int]
    cluster_id: Callable[[], str | None]
    clock: Clock
    entropy: Entropy
    connect: Connect
    endpoint: Callable[[int], tuple[str, int] | None]
    """(broker id) -> host and port of its data plane; None while it is not known to be alive."""
    on_peer_gone: Callable[[int], None]
    recover: Callable[[Partition, PeerConnection, Reaction, int], Awaitable[None]]
    """(partition, connection, FIND_RANGE or START_AT_LOCAL, leader id): find the next offset."""
    quota: ReplicationQuota
    """How fast partitions that lag may be fetched (KIP-73)."""


class PartitionFetchState:
    """One followed partition, in the leader epoch of its LeaderAndIsr."""

    __slots__ = ("_due", "failures", "key", "lags", "leader_epoch", "partition", "ready_at")

    def __init__(self, partition: Partition, due: Callable[[Key], None]) -> None:
        self._due = due
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.key: Key = (partition.topic_id.bytes, partition.partition)
        self.ready_at = 0.0
        self.failures = 0
        self.lags = True
        """By the last answer: the leader's high watermark lies beyond the log end here."""

    @property
    def is_current(self) -> bool:
        """False once the partition has another role or epoch, or its log directory failed."""
        partition = self.partition
        return (
            partition.leader_epoch == self.leader_epoch
            and not partition.is_leader
            and not partition.offline_reason
        )

    def skip(self) -> None:
        """Look at the partition again when something changes there."""
        self.partition.caught_up_followers.put(OWN_FETCHER, self)

    def end(self) -> None:
        """The partition is followed no more."""
        self.partition.caught_up_followers.drop(OWN_FETCHER, self)

    def wake(self) -> None:
        """See `CaughtUpFollower`."""
        self._due(self.key)

    def state_updated(self) -> None:
        """See `CaughtUpFollower`."""
        self._due(self.key)


class Fetcher:
    """Follows one leader broker for all partitions that it leads and this broker hosts."""

    def __init__(self, leader_id: int, limits: ReplicationConfig, ports: FetcherPorts) -> None:
        self.leader_id = leader_id
        self._limits = limits
        self._ports = ports
        self._following: dict[Key, PartitionFetchState] = {}
        self._due: dict[Key, None] = {}
        self._session = FetchSession()
        self._connection: PeerConnection | None = None
        self._in_flight = False
        self._changed = asyncio.Event()
        self._correlation_id = 0
        self._connect_failures = 0
        self._was_connected = False
        self._eager_until = -inf
        self._client_id = f"broker-{ports.broker_id}-fetcher-{leader_id}".encode()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self.fetches_total = 0

    def __len__(self) -> int:
        return len(self._following)

    def follow(self, partitions: list[Partition]) -> None:
        """Add partitions, or apply their new leader epoch. They are fetched at once, or within
        `EAGER_WAIT_MS` when others were added just before.
        """
        are_new = True
        for partition in partitions:
            row = PartitionFetchState(partition, self._mark_due)
            older = self._following.get(row.key)
            if older is not None:
                older.end()
                are_new = False
            self._following[row.key] = row
            self._mark_due(row.key)
            self._session.resend(row.key)
        now = self._ports.clock.monotonic()
        is_eager = are_new and now < self._eager_until
        if self._in_flight and are_new:
            self._eager_until = now + EAGER_S
        self._changed.set()
        if self._in_flight and not is_eager:
            self._drop_connection()

    def unfollow(self, topic_id: UUID, partition: int) -> None:
        """Drop a partition; the answer of a fetch in flight for it is ignored."""
        row = self._following.pop((topic_id.bytes, partition), None)
        if row is not None:
            row.end()
            self._mark_due(row.key)

    async def close(self) -> None:
        """Stop the loop and drop the connection."""
        self._task.cancel()
        self._drop_connection()
        for row in self._following.values():
            row.end()
        try:
            await self._task
        except asyncio.CancelledError:
            pass

    def _mark_due(self, key: Key) -> None:
        self._due[key] = None

    def _drop_connection(self) -> None:
        self._session.reset()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- the loop

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            changes, wait_s = self._changes()
            if self._session.is_empty_after(changes):
                await self._pause(wait_s)
                continue
            try:
                if self._connection is None:
                    await self._open()
                    continue  # more may be due by now
                connection = self._connection
                reply = await self._fetch(connection, changes, wait_s)
                if reply is not None:
                    await self._process_reply(connection, reply)
            except (OSError, TimeoutError, SchemaError, KafkaError) as error:
                await self._connection_failed(error)
            except Exception:  # noqa: BLE001 - logged with its traceback, see below
                # One unforeseen reply must not end replication from this leader.
                _log.exception("fetcher of broker %d: this fetch failed", self.leader_id)
                await self._connection_failed(None)

    def _changes(self) -> tuple[dict[Key, PartitionFetch | None], float | None]:
        """The due partitions with their next fetch (None: not now), and the seconds until the next
        delayed one is due."""
        if self._session.is_full:
            self._due = dict.fromkeys(self._following)
        now = self._ports.clock.monotonic()
        changes: dict[Key, PartitionFetch | None] = {}
        next_at: float | None = None
        for key in self._due:
            changes[key] = None
            row = self._following.get(key)
            if row is None:
                continue
            if not row.is_current:
                del self._following[key]
                row.end()
                continue
            if row.lags and self._ports.quota.throttles(row.partition):
                row.ready_at = max(row.ready_at, now + THROTTLE_PAUSE_S)
            if row.ready_at > now:
                next_at = row.ready_at if next_at is None else min(next_at, row.ready_at)
            else:
                changes[key] = self._fetch_of(row)
        return changes, None if next_at is None else next_at - now

    def _skip_caught_up(self, changes: Mapping[Key, PartitionFetch | None]) -> None:
        """`changes` are about to be sent: caught-up partitions are looked at no more."""
        for key, fetch in changes.items():
            row = self._following.get(key)
            if row is None or (fetch is not None and not row.lags):
                del self._due[key]
                if row is not None:
                    row.skip()

    def _fetch_of(self, row: PartitionFetchState) -> PartitionFetch:
        log = row.partition.log
        return PartitionFetch(
            topic_id=row.key[0],
            partition=row.key[1],
            leader_epoch=row.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.latest_epoch,
            log_start_offset=log.log_start_offset,
            max_bytes=self._limits.fetch_max_bytes,
        )

    async def _pause(self, seconds: float | None) -> None:
        """Wait until a partition is added, or for `seconds` (None: no limit)."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _open(self) -> None:
        endpoint = self._ports.endpoint(self.leader_id)
        if endpoint is None:
            self._connect_failures += 1
            await self._pause(self._backoff_s())
            return
        try:
            self._connection = await self._ports.connect(*endpoint)
        except ConnectionRefusedError:
            if self._was_connected:
                # The connection ended, and now the port refuses connections: the process is dead.
                self._was_connected = False
                self._ports.on_peer_gone(self.leader_id)
            raise
        self._was_connected = True
        self._session.reset()

    def _backoff_s(self) -> float:
        longest = pause_ms(self._connect_failures, self._limits.fetch_backoff_ms) / 1000
        return self._ports.entropy.uniform(longest / 2, longest)

    async def _connection_failed(self, error: Exception | None) -> None:
        """Reconnect at once after a first failure, then after growing pauses."""
        interrupted = self._changed.is_set()
        self._drop_connection()
        if interrupted:
            return
        self._connect_failures += 1
        if self._connect_failures > 1:
            if self._connect_failures == 2:
                _log.warning("fetcher of broker %d: %s; retrying", self.leader_id, error)
            await self._pause(self._backoff_s())

    async def _fetch(
        self,
        connection: PeerConnection,
        changes: Mapping[Key, PartitionFetch | None],
        due_s: float | None,
    ) -> FetchReply | None:
        limits = self._limits
        wait_ms = limits.fetch_wait_max_ms
        if due_s is not None:
            wait_ms = max(1, min(wait_ms, int(due_s * 1000)))
        if self._ports.clock.monotonic() < self._eager_until:
            wait_ms = min(wait_ms, EAGER_WAIT_MS)
        plan = self._session.plan(changes)
        self._skip_caught_up(changes)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = FetchHead(
            correlation_id=self._correlation_id,
            client_id=self._client_id,
            cluster_id=self._ports.cluster_id(),
            replica_id=self._ports.broker_id,
            broker_epoch=self._ports.broker_epoch(),
            max_wait_ms=wait_ms,
            min_bytes=limits.fetch_min_bytes,
            max_bytes=min(limits.fetch_response_max_bytes, REPLY_BYTES_MAX),
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
        )
        request = pack_fetch(head, plan.partitions, plan.forgotten)
        self._in_flight = True
        try:
            timeout_s = min(wait_ms / 1000 + ANSWER_GRACE_S, limits.socket_timeout_ms / 1000)
            async with asyncio.timeout(timeout_s):
                raw = await connection.request(request)
        finally:
            self._in_flight = False
        correlation_id, reply = parse_fetch(raw)
        self.fetches_total += 1
        if correlation_id != self._correlation_id:
            raise SchemaError(
                f"fetch reply {correlation_id} came for request {self._correlation_id}"
            )
        error = ErrorCode(reply.error_code)
        if not self._session.on_reply(error, reply.session_id):
            if error not in SESSION_ERRORS:
                raise KafkaError(error, f"broker {self.leader_id} and Fetch v{FETCH_VERSION}")
            return None
        self._connect_failures = 0
        return reply

    # -- replies

    async def _process_reply(self, connection: PeerConnection, reply: FetchReply) -> None:
        clock = self._ports.clock
        began = clock.monotonic()
        for row in reply.partitions:
            key = (row.topic_id, row.partition)
            following = self._following.get(key)
            self._mark_due(key)
            if (
                following is None
                or not following.is_current
                or self._session.sent(key) != self._fetch_of(following)
            ):
                continue  # role, epoch or log changed while the reply was on its way
            await self._process_partition(connection, following, row)
            if clock.monotonic() - began > CPU_SLICE_S:
                await asyncio.sleep(0)
                began = clock.monotonic()

    async def _process_partition(
        self, connection: PeerConnection, following: PartitionFetchState, row: FetchedPartition
    ) -> None:
        partition = following.partition
        error = ErrorCode(row.error_code)
        react = reaction(error, diverges=row.diverging is not None)
        try:
            if react is Reaction.APPEND:
                await self._append(following, row)
            elif react is Reaction.TRUNCATE:
                self._delay(following, "divergence", rarely=False)
                if self._truncate(partition, row):
                    following.ready_at = 0.0
            elif react in (Reaction.RETRY, Reaction.AWAIT_CONTROLLER):
                self._delay(following, error.name, rarely=react is Reaction.AWAIT_CONTROLLER)
            else:
                self._delay(following, error.name, rarely=False)
                await self._ports.recover(partition, connection, react, self.leader_id)
        except KafkaError as refused:
            _log.warning("following broker %d: %s", self.leader_id, refused)
            partition.check_storage(refused)
            self._delay(following, refused.code.name, rarely=False)

    async def _append(self, following: PartitionFetchState, row: FetchedPartition) -> None:
        """Append the records; a megabyte may hold thousands of batches, so the loop gets turns."""
        partition, records = following.partition, row.records
        self._ports.quota.record_copied(partition, len(records))
        while following.is_current and self._following.get(following.key) is following:
            taken = partition.append_as_follower(
                records, row.high_watermark, row.log_start_offset, BATCHES_PER_TURN
            )
            records = records[taken:]
            following.lags = row.high_watermark > partition.log.log_end_offset
            if not taken or not len(records):
                following.failures = 0
                return
            await asyncio.sleep(0)

    def _truncate(self, partition: Partition, row: FetchedPartition) -> bool:
        """Truncate where the logs diverge; False when nothing changed: do not fetch at once."""
        assert row.diverging is not None
        log = partition.log
        before = (log.log_end_offset, log.latest_epoch)
        cut = truncation(
            row.diverging,
            log.log_end_offset,
            partition.high_watermark,
            partition.epoch_end,
        )
        _log.info(
            "%s-%d: diverges from leader %d in epoch %d, end %d: truncated from %d to %d",
            partition.topic,
            partition.partition,
            self.leader_id,
            row.diverging.epoch,
            row.diverging.end_offset,
            log.log_end_offset,
            cut.offset,
        )
        partition.truncate_to(cut.offset)
        return before != (log.log_end_offset, log.latest_epoch)

    def _delay(self, following: PartitionFetchState, error: str, *, rarely: bool) -> None:
        following.failures += 1
        longest = self._limits.fetch_backoff_ms
        pause = longest if rarely else pause_ms(following.failures, longest)
        following.ready_at = self._ports.clock.monotonic() + pause / 1000
        if following.failures in (5, 50):
            _log.warning(
                "%r: %d fetches in a row failed: %s", following.partition, following.failures, error
            )
