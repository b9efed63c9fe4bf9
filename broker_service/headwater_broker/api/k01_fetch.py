"""Fetch: sessions, bounds, parking, and slices of segment files sent as they are.

Consumers read below the high watermark (or last stable offset), followers to the log end; what a
follower asks for is also what it holds. A fetch with too little to read waits in the purgatory
for its `min_bytes` or `max_wait_ms` (KIP-74, KIP-98, KIP-227, KIP-320, KIP-392, KIP-405, KIP-595).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.ports.remote_log import RemoteLogError
from headwater.wire.apis.k01_fetch import FetchRequest, FetchResponse
from headwater_broker.api.fetch.codec import TOPIC_IDS_SINCE, FetchFrame, parse_fetch
from headwater_broker.api.fetch.fast_path import answer_plain
from headwater_broker.api.fetch.leadership_confirmation import confirm, is_doubtful
from headwater_broker.api.fetch.read import READ_COMMITTED, PartitionRead, read_all
from headwater_broker.api.fetch.replica_selector import LEADER
from headwater_broker.api.fetch.responses import FetchReply
from headwater_broker.api.fetch_session.cache import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
)
from headwater_broker.api.fetch_session.dirty_set import SessionMoves
from headwater_broker.api.fetch_session.partition import FetchItem
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles_raw
from headwater_broker.api.replies import Answer, FilePart, ParkedReply, Part
from headwater_broker.api.request_limits import REMOTE_READS_PER_FETCH
from headwater_broker.purgatory.purgatory import DelayedOperation, WatchedOffset

logger = logging.getLogger(__name__)


@handles_raw(FetchRequest, FetchResponse, versions=(4, 18))
def fetch(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int,
    kind: type[FetchJob] | None = None,
) -> Answer:  # fmt: skip
    """Answer at once when there is enough, an error, or no time to wait; park otherwise."""
    if kind is None:
        answer = answer_plain(peer, view, at, end, version, correlation_id)
        if answer is not None:
            return answer
    frame = parse_fetch(view[:end], at, end, version)
    return (kind or FetchJob)(peer, frame, version, correlation_id).start()


class FetchJob(DelayedOperation):
    """One fetch from its first read to its reply, parked in between or not."""

    __slots__ = (
        "_correlation_id",
        "_frame",
        "_gauges",
        "_is_incremental",
        "_items",
        "_moves",
        "_parked_reads",
        "_peer",
        "_reply",
        "_session",
        "_session_id",
        "_version",
    )

    def __init__(self, peer: Peer, frame: FetchFrame, version: int, correlation_id: int) -> None:
        super().__init__()
        self._peer = peer
        self._frame = frame
        most = peer.services.config.fetch_max_bytes
        if frame.max_bytes > most:
            frame.max_bytes = most
        if frame.min_bytes > frame.max_bytes:
            frame.min_bytes = frame.max_bytes
        self._version = version
        self._correlation_id = correlation_id
        self._session: FetchSession | None = None
        self._session_id = NO_SESSION
        self._is_incremental = False
        self._items: list[FetchItem] = frame.items
        self._moves: SessionMoves | None = None
        """Set while this goes over what is due in its session, and over nothing else."""
        self._reply: ParkedReply | None = None
        self._gauges: dict[WatchedOffset, PartitionRead] = {}
        self._parked_reads: list[PartitionRead] = []
        """What was read when this was parked, as long as no bound has moved since."""

    def start(self) -> Answer:
        """Open or continue the session, read once, then answer or park."""
        peer, frame = self._peer, self._frame
        if frame.replica_id >= 0:
            if not self._may_replicate():
                return self._error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            peer.raw_meters = peer.services.meters.of_followers
        try:
            self._open_session()
        except KafkaError as error:
            return self._error(error.code)
        reads, total, is_urgent = read_all(
            peer.services, peer.session, frame, self._items, self._version, is_first=True
        )
        if (
            is_urgent
            or total >= frame.min_bytes
            or frame.max_wait_ms <= 0
            or (not self._items and self._moves is None)
            or self._is_mark_due(reads)
        ):
            return self._answer(reads)
        self._reply = peer.park()
        self._reply.on_gone = self._give_up
        self._parked_reads = [] if total or self._moves is not None else reads
        self._park(reads)
        return self._reply

    def try_complete(self, gauge: WatchedOffset) -> None:
        """A bound moved: look again, answer, or wait for the next move of that bound."""
        watched = self._gauges.pop(gauge, None)
        self._parked_reads = []
        peer, frame = self._peer, self._frame
        if self._moves is not None:
            self._items = list(self._moves.due)
        reads, total, is_urgent = read_all(
            peer.services, peer.session, frame, self._items, self._version, is_first=False
        )
        if is_urgent or total >= frame.min_bytes or self._is_mark_due(reads):
            if peer.services.purgatories.fetch.complete(self):
                self._answer(reads)
        elif self._moves is not None:
            self._await_moves(self._moves, reads)
        elif watched is not None:
            self._watch(watched)

    def on_expiration(self) -> None:
        """max_wait_ms is over: answer with what there is now."""
        peer, reads = self._peer, self._parked_reads
        if reads:
            # Of thousands of partitions none has anything to give: only marks may have moved.
            for read in reads:
                if read.partition is not None:
                    read.take_marks(read.partition)
        else:
            if self._moves is not None:
                self._items = list(self._moves.due)
            reads, _, _ = read_all(
                peer.services, peer.session, self._frame, self._items, self._version,
                is_first=False,
            )  # fmt: skip
        self._answer(reads)

    def on_failure(self, error: Exception) -> None:
        """The consumer learns it from its connection, and asks again."""
        self._let_go()
        self._peer.close(f"internal error: {error!r}")

    # --- sessions -----------------------------------------------------------------------------

    def _may_replicate(self) -> bool:
        peer = self._peer
        return peer.session.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")

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
                    self._begin_moves(self._session)
            return
        session = cache.continue_session(
            frame.session_id, frame.session_epoch, uses_topic_ids=by_id
        )
        session.apply(frame.items, frame.forgotten)
        if not session.items:  # as Kafka: nothing to remember; session 0 tells the client
            cache.close(session.session_id)
            return
        self._session = session
        self._session_id = session.session_id
        self._is_incremental = True
        moves = self._moves = self._moves_of(session)
        if moves is None:
            self._items = list(session.items.values())
        else:
            now = self._peer.services.clock.monotonic()
            moves.fetched_by((frame.replica_id, frame.replica_epoch), now)
            self._items = list(moves.due)

    def _begin_moves(self, session: FetchSession) -> None:
        """The first fetch names all; the next ones of a follower go over what moved."""
        frame, services = self._frame, self._peer.services
        if session.is_follower:
            session.moves = SessionMoves(
                (frame.replica_id, frame.replica_epoch),
                session.items.values(),
                services.purgatories.fetch,
            )

    def _moves_of(self, session: FetchSession) -> SessionMoves | None:
        """None for consumers. Where consumers read from followers, these are told each mark, and
        choosing among them needs to know when each has fetched: all is looked at each time."""
        if self._frame.replica_id < 0 or self._peer.services.config.selects_by_rack:
            session.moves = None
        return session.moves

    def _changed_only(
        self, session: FetchSession, reads: list[PartitionRead]
    ) -> list[PartitionRead]:
        """What an incremental reply names: data, errors, and marks that moved."""
        moves = self._moves
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
            item.sent_high_watermark = -1 if read.code else read.high_watermark
            item.sent_log_start = read.log_start_offset
            if has_data:
                session.rotate(item)
            if moves is not None and not read.code and read.diverging is None and not has_data:
                assert read.partition is not None
                moves.keep(item, read.partition)
        return named if self._is_incremental else reads

    # --- waiting ------------------------------------------------------------------------------

    def _park(self, reads: list[PartitionRead]) -> None:
        self._peer.services.purgatories.fetch.park(self, self._frame.max_wait_ms)
        if self._moves is not None:
            self._await_moves(self._moves, reads)
            return
        for read in reads:
            self._watch(read)

    def _await_moves(self, moves: SessionMoves, reads: list[PartitionRead]) -> None:
        """Wait for whatever stirs in the session: what was read here is told, too."""
        for read in reads:
            if read.partition is not None:
                moves.keep(read.item, read.partition)
        moves.wait(self)

    def _watch(self, read: PartitionRead) -> None:
        """Wait for the bound to rise above what it was when this was read."""
        partition = read.partition
        if partition is None:
            return
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
        self._wait_for(gauge, bound + 1, read)
        if is_follower and services.config.selects_by_rack:
            marks = services.purgatories.watches.read_bound(
                partition, is_follower=False, committed=False
            )
            self._wait_for(marks, partition.high_watermark + 1, read)

    def _wait_for(self, gauge: WatchedOffset, threshold: int, read: PartitionRead) -> None:
        if gauge not in self._gauges:
            self._gauges[gauge] = read
            gauge.add(threshold, self)

    def _is_mark_due(self, reads: list[PartitionRead]) -> bool:
        """Consumers read from this follower, as far as it knows of the high watermark: a newer one
        does not wait for data."""
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

    def _blank(self, session_id: int) -> FetchReply:
        peer = self._peer
        return FetchReply(
            peer.services, self._version, self._correlation_id, session_id, peer.session.listener
        )

    def _answer(self, reads: list[PartitionRead]) -> Answer:
        """Give the reply, now or after the disk, the table or the metadata store has answered."""
        for read in reads:
            if read.is_remote or (read.code and self._frame.replica_id < 0 and is_doubtful(read)):
                reply = self._reply = self._reply or self._peer.park()
                self._peer.spawn(self._answer_later(reads, reply))
                return reply
        parts, cold = self._encode(reads)
        if cold:
            reply = self._reply = self._reply or self._peer.park()
            self._peer.spawn(self._answer_cold(parts, cold, reply))
            return reply
        return self._give(parts)

    def _give(self, parts: list[Part]) -> Answer:
        """Into the place that was kept for it, or as this call's answer."""
        if self._reply is not None:
            for part in parts:
                if isinstance(part, FilePart):  # others may be parked before it
                    part.own()
            self._reply.resolve(parts)
            self._let_go()
            return None
        only = parts[0]
        return only if len(parts) == 1 and isinstance(only, bytes) else parts

    def _give_up(self) -> None:
        """The connection is lost."""
        if self._peer.services.purgatories.fetch.complete(self):
            self._let_go()

    def _let_go(self) -> None:
        """Gauges may hold on to an answered job for a while: not to all that it read, too."""
        self._items = self._frame.items = []
        self._parked_reads = []
        self._gauges = {}
        self._session = self._reply = self._moves = None

    def _encode(self, reads: list[PartitionRead]) -> tuple[list[Part], list[FilePart]]:
        services = self._peer.services
        meters = services.meters
        for read in reads:
            size = read.slice.size_bytes
            if size:
                meter = meters.topics.get(read.name) or meters.topic(read.name)
                meter.bytes_out += size
                if self._frame.replica_id >= 0 and read.partition is not None:
                    services.replicas.quotas.leader.passed(read.partition, size)
            elif read.code:
                self._count_error(read)
        reply = self._blank(self._session_id)
        named = reads if self._session is None else self._changed_only(self._session, reads)
        return reply.build(named), reply.cold

    def _count_error(self, read: PartitionRead) -> None:
        """What clients make up must not become a metric's label: only topics hosted here do."""
        topic = None if read.partition is None else read.name
        is_follower = self._frame.replica_id >= 0
        self._peer.services.meters.fetch_failed(topic, read.code, is_follower=is_follower)

    async def _answer_cold(
        self, parts: list[Part], cold: Sequence[FilePart], reply: ParkedReply
    ) -> None:
        # What is not cold may lose its segment meanwhile.
        for part in parts:
            if isinstance(part, FilePart):
                part.own()
        await self._peer.services.warmer.warm(cold)
        reply.resolve(parts)

    async def _answer_later(self, reads: list[PartitionRead], reply: ParkedReply) -> None:
        budget = self._frame.max_bytes - sum(read.slice.size_bytes for read in reads)
        remote = [read for read in reads if read.is_remote]
        doubtful = [read for read in reads if is_doubtful(read)]
        await confirm(self._peer.services, doubtful)
        for read in remote[:REMOTE_READS_PER_FETCH]:
            await self._read_remote(read, max(budget, 1))
            if read.remote is not None:
                budget -= read.remote[2]
        parts, cold = self._encode_again(reads, settled=[*remote, *doubtful])
        if cold:
            await self._answer_cold(parts, cold, reply)
        else:
            reply.resolve(parts)

    def _encode_again(
        self, reads: list[PartitionRead], settled: list[PartitionRead]
    ) -> tuple[list[Part], list[FilePart]]:
        """Other slices may have gone meanwhile: read them anew."""
        peer = self._peer
        local = [read.item for read in reads if read not in settled]
        if local:
            fresh, _, _ = read_all(
                peer.services, peer.session, self._frame, local, self._version, is_first=False
            )
            by_item = {id(read.item): read for read in fresh}
            reads = [by_item.get(id(read.item), read) for read in reads]
        return self._encode(reads)

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
