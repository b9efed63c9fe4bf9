"""Fetch (Kafka's DelayedFetch), first read to response: sessions, bounds, parking, file slices.

Consumers read below the high watermark (or the last stable offset), followers to the log end; the
offset that a follower fetches is also how far it has replicated. A fetch with too little to return
is parked in the purgatory for its `min_bytes` or `max_wait_ms`; `fast_path` answers the plain ones
that find enough (KIP-74, KIP-98, KIP-227, KIP-320, KIP-392, KIP-405, KIP-595).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.ports.remote_log import RemoteLogError
from headwater.security.acl import CLUSTER_NAME
from headwater_broker.api.api_config import REMOTE_READS_PER_FETCH
from headwater_broker.api.fetch.read import (
    READ_COMMITTED,
    PartitionRead,
    read_all,
    unsettled,
)
from headwater_broker.api.fetch.replica_selector import LEADER
from headwater_broker.api.fetch.request_codec import TOPIC_IDS_SINCE, FetchFrame
from headwater_broker.api.fetch.response_codec import FetchReply, with_throttle_time
from headwater_broker.api.fetch_session.cache import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
)
from headwater_broker.api.fetch_session.dirty_set import DirtyPartitions
from headwater_broker.api.fetch_session.partition import FetchItem
from headwater_broker.api.leadership_confirmation import confirm
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import Answer, FilePart, ParkedReply, Part
from headwater_broker.purgatory.purgatory import DelayedOperation, WatchedOffset
from headwater_broker.quota.client_quotas import RequestQuota
from headwater_broker.replica.partition import Partition

logger = logging.getLogger(__name__)


class DelayedFetch(DelayedOperation):
    """One fetch, which may be parked between its first read and its response.

    `quota`: the quotas of the client; None while no client has any.
    """

    __slots__ = (
        "_correlation_id",
        "_dirty",
        "_frame",
        "_gauges",
        "_is_incremental",
        "_parked_reads",
        "_peer",
        "_quota",
        "_reply",
        "_session",
        "_session_id",
        "_version",
    )

    def __init__(
        self,
        peer: Peer,
        frame: FetchFrame,
        version: int,
        correlation_id: int,
        quota: RequestQuota | None = None,
    ) -> None:
        super().__init__()
        self._peer = peer
        self._frame = frame
        most = peer.services.config.fetch_max_bytes
        if quota is not None and frame.replica_id < 0:
            most = quota.fetch_bytes_max(most)
        if frame.max_bytes > most:
            frame.max_bytes = most
        if frame.min_bytes > frame.max_bytes:
            frame.min_bytes = frame.max_bytes
        self._quota = quota
        self._version = version
        self._correlation_id = correlation_id
        self._session: FetchSession | None = None
        self._session_id = NO_SESSION
        self._is_incremental = False
        self._dirty: DirtyPartitions | None = None
        """Set when this reads only the due partitions of a follower's session."""
        self._reply: ParkedReply | None = None
        self._gauges: dict[WatchedOffset, Partition] = {}
        self._parked_reads: list[PartitionRead] = []
        """The reads before this was parked, while no bound has moved since."""

    def start(self) -> Answer:
        """Open or continue the session, read once, then answer or park."""
        peer, frame = self._peer, self._frame
        if frame.replica_id >= 0:
            peer.is_exempt = peer.session.allows(
                Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
            )
            if not peer.is_exempt:
                return self._refuse_follower()
            peer.raw_meters = peer.services.meters.of_followers
        try:
            self._open_session()
        except KafkaError as error:
            return self._error(error.code)
        return self._first_read(self._due())

    def go_on(self, session: FetchSession, items: list[FetchItem] | None = None) -> Answer:
        """As `start`, in a session that is continued already; `items`: the partitions to read."""
        self._continue(session)
        return self._first_read(self._due() if items is None else items)

    def _first_read(self, items: list[FetchItem]) -> Answer:
        peer, frame = self._peer, self._frame
        reads, total, is_urgent = self._read(items, is_first=True)
        if (
            is_urgent
            or total >= frame.min_bytes
            or frame.max_wait_ms <= 0
            or (self._session is None and not items)
            or self._is_mark_due(reads)
        ):
            return self._answer(reads)
        self._reply = peer.park()
        self._reply.on_gone = self._give_up
        self._parked_reads = [] if total or self._is_incremental else reads
        self._park(reads)
        return self._reply

    def try_complete(self, gauge: WatchedOffset) -> None:
        """A bound moved: read again, and answer or wait for the next move of that bound."""
        watched = self._gauges.pop(gauge, None)
        self._parked_reads = []
        reads, total, is_urgent = self._read_again()
        if is_urgent or total >= self._frame.min_bytes or self._is_mark_due(reads):
            if self._peer.services.purgatories.fetch.complete(self):
                self._answer(reads)
        elif self._dirty is not None:
            self._await_dirty(self._dirty, reads)
        elif watched is not None:
            self._watch(watched)

    def on_expiration(self) -> None:
        """max_wait_ms is over: answer with the records that there are."""
        reads = self._parked_reads
        if reads:
            # No partition, of perhaps thousands, has records: only high watermarks may have moved.
            for read in reads:
                if read.partition is not None:
                    read.set_offsets(read.partition)
        else:
            reads, _, _ = self._read_again()
        self._answer(reads)

    def on_failure(self, error: Exception) -> None:
        """Close the connection: the client fetches again on another."""
        self._let_go()
        self._peer.close(f"internal error: {error!r}")

    def _read_again(self) -> tuple[list[PartitionRead], int, bool]:
        return self._read(self._due(), is_first=False)

    def _read(
        self, items: list[FetchItem], *, is_first: bool
    ) -> tuple[list[PartitionRead], int, bool]:
        peer = self._peer
        return read_all(
            peer.services, peer.session, self._frame, items, self._version,
            is_first=is_first, omits_unchanged=self._is_incremental and not self._reads_all(),
        )  # fmt: skip

    # --- sessions -----------------------------------------------------------------------------

    def _open_session(self) -> None:
        frame, cache = self._frame, self._peer.services.sessions
        by_id = self._version >= TOPIC_IDS_SINCE
        if frame.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if frame.session_id != NO_SESSION:
                cache.close(frame.session_id)
            if frame.session_epoch == INITIAL_EPOCH and frame.items:
                self._session = cache.create(
                    frame.items, uses_topic_ids=by_id, is_follower=frame.replica_id >= 0
                )
                if self._session is not None:
                    self._session_id = self._session.session_id
                    self._begin_dirty_set(self._session)
            return
        session = cache.continue_session(
            frame.session_id, frame.session_epoch, uses_topic_ids=by_id
        )
        session.apply(frame.items, frame.forgotten)
        if not session.items:  # as Kafka: nothing to remember; session 0 tells the client
            cache.close(session.session_id)
            return
        self._continue(session)

    def _continue(self, session: FetchSession) -> None:
        frame = self._frame
        self._session = session
        self._session_id = session.session_id
        self._is_incremental = True
        dirty = self._dirty = self._dirty_set_of(session)
        if dirty is not None:
            now = self._peer.services.clock.monotonic()
            dirty.fetched_by((frame.replica_id, frame.replica_epoch), now)

    def _due(self) -> list[FetchItem]:
        """The partitions to read: in a session those that the response may name."""
        session, frame = self._session, self._frame
        if session is None or not self._is_incremental:
            return frame.items
        if self._dirty is not None:
            return list(self._dirty.due)
        if self._reads_all():
            return list(session.items.values())
        return unsettled(session, self._peer.session, frame.isolation)

    def _reads_all(self) -> bool:
        """True when reads have a second purpose: they record a follower's progress, or select the
        replica for a consumer's rack (KIP-392)."""
        frame = self._frame
        selects = frame.rack_id and self._peer.services.config.selects_by_rack
        return frame.replica_id >= 0 or bool(selects)

    def _begin_dirty_set(self, session: FetchSession) -> None:
        """After the first fetch of a follower's session the next ones read dirty partitions."""
        frame, services = self._frame, self._peer.services
        if session.is_follower:
            session.dirty = DirtyPartitions(
                (frame.replica_id, frame.replica_epoch),
                session.items.values(),
                services.purgatories.fetch,
            )

    def _dirty_set_of(self, session: FetchSession) -> DirtyPartitions | None:
        """None for consumers, and where consumers read from followers: these need every new high
        watermark, and replica selection needs the time of each one's last fetch."""
        if self._frame.replica_id < 0 or self._peer.services.config.selects_by_rack:
            session.dirty = None
        return session.dirty

    def _changed_only(
        self, session: FetchSession, reads: list[PartitionRead]
    ) -> list[PartitionRead]:
        """The partitions of an incremental response: those with records, an error, another high
        watermark or log start."""
        dirty = self._dirty
        named = []
        for read in reads:
            item = read.item
            has_data = bool(read.slice.size_bytes or read.remote)
            if (
                has_data
                or read.code
                or read.diverging is not None
                or read.preferred != LEADER
                or item.sent_high_watermark != read.high_watermark
                or item.sent_log_start != read.log_start_offset
            ):
                named.append(read)
            # A follower that must truncate reads nothing else of the row: it gets the high
            # watermark again, or an idle partition would keep an old one.
            is_unread = bool(read.code) or read.diverging is not None
            item.sent_high_watermark = -1 if is_unread else read.high_watermark
            item.sent_log_start = read.log_start_offset
            if has_data:
                session.rotate(item)
            if dirty is not None and not read.code and read.diverging is None and not has_data:
                assert read.partition is not None
                dirty.mark_read(item, read.partition)
        return named if self._is_incremental else reads

    # --- waiting ------------------------------------------------------------------------------

    def _park(self, reads: list[PartitionRead]) -> None:
        self._peer.services.purgatories.fetch.park(self, self._frame.max_wait_ms)
        if self._dirty is not None:
            self._await_dirty(self._dirty, reads)
            return
        for item in self._waiting_items():
            if item.located is not None:
                self._watch(item.located)

    def _waiting_items(self) -> Iterable[FetchItem]:
        session = self._session
        return self._frame.items if session is None else session.items.values()

    def _await_dirty(self, dirty: DirtyPartitions, reads: list[PartitionRead]) -> None:
        """Wait for a change of any partition of the session, those just read included."""
        for read in reads:
            if read.partition is not None:
                dirty.mark_read(read.item, read.partition)
        dirty.wait(self)

    def _watch(self, partition: Partition) -> None:
        """Wait for the bound to rise above what it is now."""
        is_follower = self._frame.replica_id >= 0
        committed = self._frame.isolation == READ_COMMITTED
        services = self._peer.services
        gauge = services.purgatories.watches.read_bound(
            partition, is_follower=is_follower, committed=committed
        )
        if is_follower:
            bound = partition.log.log_end_offset
        else:
            bound = partition.last_stable_offset if committed else partition.high_watermark
        self._wait_for(gauge, bound + 1, partition)
        if is_follower and services.config.selects_by_rack:
            marks = services.purgatories.watches.read_bound(
                partition, is_follower=False, committed=False
            )
            self._wait_for(marks, partition.high_watermark + 1, partition)

    def _wait_for(self, gauge: WatchedOffset, threshold: int, partition: Partition) -> None:
        if gauge not in self._gauges:
            self._gauges[gauge] = partition
            gauge.add(threshold, self)

    def _is_mark_due(self, reads: list[PartitionRead]) -> bool:
        """True when a follower that consumers read from lacks a newer high watermark, which bounds
        their reads."""
        if not self._is_incremental or self._frame.replica_id < 0:
            return False
        return self._peer.services.config.selects_by_rack and any(
            read.high_watermark > read.item.sent_high_watermark for read in reads
        )

    # --- answering ----------------------------------------------------------------------------

    def _error(self, code: ErrorCode) -> Answer:
        is_follower = self._frame.replica_id >= 0
        self._peer.services.meters.fetch_failed(None, code, is_follower=is_follower)
        return self._blank(NO_SESSION).build([], code)

    def _refuse_follower(self) -> Answer:
        """Refuse each partition, as Kafka does. No session is opened or continued."""
        reads = [PartitionRead(item, "") for item in self._frame.items]
        for read in reads:
            read.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no CLUSTER_ACTION on the cluster")
            self._count_error(read)
        return self._give(self._blank(NO_SESSION).build(reads))

    def _blank(self, session_id: int) -> FetchReply:
        peer = self._peer
        return FetchReply(
            peer.services, self._version, self._correlation_id, session_id, peer.session.listener
        )

    def _answer(self, reads: list[PartitionRead]) -> Answer:
        """Answer now, or once the disk, the Delta table or the metadata store has answered."""
        if self._quota is not None and self._frame.replica_id < 0:
            delay_ms = self._quota.fetch_delay_ms(sum(read.slice.size_bytes for read in reads))
            if delay_ms:
                return self._throttled(delay_ms)
        for read in reads:
            if read.is_remote or (self._frame.replica_id < 0 and read.is_beyond_end):
                reply = self._reply = self._reply or self._peer.park()
                self._peer.spawn(self._answer_later(reads, reply))
                return reply
        parts, cold = self._encode(reads)
        if cold:
            reply = self._reply = self._reply or self._peer.park()
            self._peer.spawn(self._answer_cold(parts, cold, reply))
            return reply
        return self._give(parts)

    def _throttled(self, delay_ms: int) -> Answer:
        """Answer without partitions, as Kafka does: the client repeats its fetch. A session that
        this fetch opened is closed (KIP-219)."""
        self._peer.mute(delay_ms)
        if self._reply is not None and self._reply.timing is not None:
            self._reply.timing.throttle_s = delay_ms / 1000
        if not self._is_incremental and self._session is not None:
            self._peer.services.sessions.close(self._session_id)
            self._session_id = NO_SESSION
        parts = self._blank(self._session_id).build([])
        return self._give(with_throttle_time(parts, self._version, delay_ms))

    def _give(self, parts: list[Part]) -> Answer:
        """Resolve the parked reply, or return the answer of this call."""
        if self._reply is not None:
            for part in parts:
                if isinstance(part, FilePart):  # replies before it may be parked longer
                    part.own()
            self._reply.resolve(parts)
            self._let_go()
            return None
        only = parts[0]
        return only if len(parts) == 1 and isinstance(only, bytes) else parts

    def _give_up(self) -> None:
        """The connection is lost: leave the purgatory."""
        if self._peer.services.purgatories.fetch.complete(self):
            self._let_go()

    def _let_go(self) -> None:
        """Release what was read: watch lists may keep an answered fetch for a while."""
        self._frame.items = []
        self._parked_reads = []
        self._gauges = {}
        self._session = self._reply = self._dirty = None

    def _encode(self, reads: list[PartitionRead]) -> tuple[list[Part], list[FilePart]]:
        services = self._peer.services
        meters = services.meters
        for read in reads:
            size = read.slice.size_bytes
            if size:
                meter = meters.topics.get(read.name) or meters.topic(read.name)
                meter.bytes_out += size
                if self._frame.replica_id >= 0 and read.partition is not None:
                    services.replicas.quotas.leader.record_copied(read.partition, size)
            elif read.code:
                self._count_error(read)
        reply = self._blank(self._session_id)
        named = reads if self._session is None else self._changed_only(self._session, reads)
        return reply.build(named), reply.cold

    def _count_error(self, read: PartitionRead) -> None:
        """Count an error; by topic only if it is hosted here: a client must not create metrics."""
        topic = None if read.partition is None else read.name
        is_follower = self._frame.replica_id >= 0
        self._peer.services.meters.fetch_failed(topic, read.code, is_follower=is_follower)

    async def _answer_cold(
        self, parts: list[Part], cold: Sequence[FilePart], reply: ParkedReply
    ) -> None:
        # Slices in the page cache may lose their segments meanwhile.
        for part in parts:
            if isinstance(part, FilePart):
                part.own()
        await self._peer.services.warmer.warm(cold)
        reply.resolve(parts)

    async def _answer_later(self, reads: list[PartitionRead], reply: ParkedReply) -> None:
        budget = self._frame.max_bytes - sum(read.slice.size_bytes for read in reads)
        remote = [read for read in reads if read.is_remote]
        doubtful = [read for read in reads if read.is_beyond_end]
        await confirm(self._peer.services, [read.unconfirmed() for read in doubtful])
        for read in remote[:REMOTE_READS_PER_FETCH]:
            await self._read_remote(read, max(budget, 1))
            if read.remote is not None:
                budget -= read.remote[2]
        parts, cold = self._encode_again([*remote, *doubtful])
        if cold:
            await self._answer_cold(parts, cold, reply)
        else:
            reply.resolve(parts)

    def _encode_again(self, settled: list[PartitionRead]) -> tuple[list[Part], list[FilePart]]:
        """Read all but the settled partitions again: their slices may be gone meanwhile."""
        due = self._due()
        known = {id(read.item): read for read in settled}
        fresh, _, _ = self._read([item for item in due if id(item) not in known], is_first=False)
        known.update((id(read.item), read) for read in fresh)
        return self._encode([known[id(item)] for item in due if id(item) in known])

    async def _read_remote(self, read: PartitionRead, max_bytes: int) -> None:
        remote_log, partition = self._peer.services.remote_log, read.partition
        if remote_log is None or partition is None:
            return
        topic = self._peer.services.tiered_topic(partition.topic, partition.topic_id)
        size = min(read.item.max_bytes, max_bytes)
        try:
            part = await remote_log.read(topic, partition.partition, read.item.fetch_offset, size)
            fd = os.open(part.path, os.O_RDONLY)
        except (RemoteLogError, OSError) as error:
            where = f"{partition.topic}-{partition.partition} at {read.item.fetch_offset}"
            # As Kafka answers a failed remote read: librdkafka retries KAFKA_STORAGE_ERROR for
            # ever without a word, and this must be seen.
            read.fail(ErrorCode.UNKNOWN_SERVER_ERROR, f"{where}: {error}")
            self._peer.services.meters.remote_errors += 1
            logger.warning("cannot read the table of %s: %s", where, error)
            return
        read.remote = (fd, part.position, part.size_bytes)
        self._peer.services.meters.topic(read.name).bytes_out += part.size_bytes
        if self._quota is not None and self._frame.replica_id < 0:
            self._quota.fetched(part.size_bytes)
