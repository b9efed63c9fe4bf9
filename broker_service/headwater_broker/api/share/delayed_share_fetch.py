"""ShareFetch (Kafka's DelayedShareFetch), from session to response: KIP-932, KIP-1206, KIP-1222.

Acknowledgements that come with a fetch are applied first, and are durable before anything is read:
what the member releases it may get again. A fetch with nothing to acquire is parked until records
come under the read bound, are released, or their locks expire, at most for `max_wait_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k78_share_fetch import ShareFetchRequest
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import Answer, FilePart, ParkedReply, Part
from headwater_broker.api.request_meters import SHARE_FETCH
from headwater_broker.api.share.acknowledgements import Acknowledger, located, topic_name
from headwater_broker.api.share.response_codec import (
    ShareFetchReply,
    ShareRow,
    release_records,
    with_throttle_time,
)
from headwater_broker.api.share.share_read import Later, ShareRead
from headwater_broker.purgatory.purgatory import DelayedOperation, WatchedOffset
from headwater_broker.quota.client_quotas import RequestQuota
from headwater_broker.replica.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PartitionId,
    ShareSession,
)
from headwater_broker.replica.share.share_partition import Wanted
from headwater_broker.replica.share.share_partition_manager import ShareManager

RECORD_LIMIT = 1
"""share_acquire_mode: max_records is not exceeded."""
RENEW_SINCE = 2


class DelayedShareFetch(DelayedOperation):
    """One share fetch, which may be parked. `quota`: None while no client has any."""

    __slots__ = (
        "_acknowledger",
        "_correlation_id",
        "_gauges",
        "_group_id",
        "_member_id",
        "_peer",
        "_quota",
        "_reply",
        "_request",
        "_session",
        "_shares",
        "_version",
    )

    def __init__(
        self,
        peer: Peer,
        shares: ShareManager,
        request: ShareFetchRequest,
        version: int,
        correlation_id: int,
        quota: RequestQuota | None,
    ) -> None:
        super().__init__()
        self._peer = peer
        self._shares = shares
        self._request = request
        self._version = version
        self._correlation_id = correlation_id
        self._quota = quota
        self._group_id = request.group_id or ""
        self._member_id = request.member_id or ""
        self._session: ShareSession | None = None
        self._reply: ParkedReply | None = None
        self._gauges: dict[WatchedOffset, PartitionId] = {}
        self._acknowledger = Acknowledger(
            peer.services,
            shares,
            peer.session,
            self._group_id,
            self._member_id,
            may_renew=version >= RENEW_SINCE and request.is_renew_ack,
        )

    # --- session and acknowledgements

    def start(self) -> Answer:
        """Answer at once, or park."""
        try:
            self._check()
            self._open_session()
        except KafkaError as error:
            self._peer.services.meters.api(SHARE_FETCH).failed(int(error.code))
            return self._reply_of([], error)
        for topic in self._request.topics:
            for row in topic.partitions:
                if row.acknowledgement_batches:
                    key = (topic.topic_id, row.partition_index)
                    self._acknowledger.apply(key, row.acknowledgement_batches)
        if self._acknowledger.is_pending:
            self._reply = self._peer.park()
            self._peer.spawn(self._after_acknowledgements())
            return self._reply
        return self._fetch()

    def _check(self) -> None:
        request, session = self._request, self._peer.session
        if not session.allows(Operation.READ, ResourceType.GROUP, self._group_id):
            raise KafkaError(
                ErrorCode.GROUP_AUTHORIZATION_FAILED, f"no READ on group {self._group_id}"
            )
        if not self._group_id or not self._member_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a share fetch names group and member")
        if self._version >= RENEW_SINCE and request.is_renew_ack:
            wanted = (
                request.max_wait_ms,
                request.min_bytes,
                request.max_bytes,
                request.max_records,
            )
            if any(wanted):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "with is_renew_ack max_wait_ms, min_bytes, max_bytes and max_records are 0: "
                    f"got {wanted}",
                )

    def _open_session(self) -> None:
        request, sessions = self._request, self._shares.sessions
        names = [(t.topic_id, row.partition_index) for t in request.topics for row in t.partitions]
        epoch = request.share_session_epoch
        if epoch == FINAL_EPOCH:
            self._session = sessions.find(self._group_id, self._member_id)
            return
        if epoch != INITIAL_EPOCH:
            self._session = sessions.go_on(self._group_id, self._member_id, epoch)
            forgotten = [
                (t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions
            ]
            self._session.apply(names, forgotten)
            return
        if any(row.acknowledgement_batches for t in request.topics for row in t.partitions):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "acknowledgements in the request that opens the session"
            )
        session = self._session = sessions.open(self._group_id, self._member_id, names)
        ends, owner = self._peer.at_end, (self._group_id, self._member_id)
        ends[owner] = partial(sessions.close, session)

        def forget() -> None:
            ends.pop(owner, None)

        session.at_close = forget

    async def _after_acknowledgements(self) -> None:
        await self._acknowledger.settled()
        self._fetch()

    def _fetch(self) -> Answer:
        request, session = self._request, self._session
        assert session is not None
        if request.share_session_epoch == FINAL_EPOCH:
            self._shares.sessions.close(session)
            return self._answer([])
        if self._acknowledger_renews or request.max_records <= 0:
            return self._answer([])
        if self._quota is not None and (delay_ms := self._quota.fetch_delay_ms(0)):
            return self._throttled(delay_ms)
        answer, is_answered = self._try(is_last=request.max_wait_ms <= 0)
        if is_answered:
            return answer
        if self._reply is None:
            self._reply = self._peer.park()
        self._reply.on_gone = self._give_up
        self._peer.services.purgatories.fetch.park(self, request.max_wait_ms)
        self._watch(list(session.partitions))
        return self._reply

    @property
    def _acknowledger_renews(self) -> bool:
        return self._version >= RENEW_SINCE and self._request.is_renew_ack

    # --- reading

    def _try(self, *, is_last: bool) -> tuple[Answer, bool]:
        """(the answer, whether there is one): when records were acquired, something failed, or
        `is_last`: max_wait_ms is over."""
        session = self._session
        if session is None or session.is_closed:
            return self._complete([]), True
        read = ShareRead(
            self._peer.services,
            self._member_id,
            Wanted(
                self._request.max_records,
                self._request.batch_size if self._request.batch_size > 0 else 2**31 - 1,
                is_exact=self._version >= RENEW_SINCE
                and self._request.share_acquire_mode == RECORD_LIMIT,
            ),
            self._max_bytes(),
        )
        if not is_last and not self._has_min_bytes(session, read):
            return None, False
        rows = [row for key in list(session.partitions) if (row := self._read(key, read))]
        if read.later:
            return self._complete_later(rows, read), True
        if rows or is_last:
            return self._complete(rows), True
        return None, False

    def _max_bytes(self) -> int:
        most = min(self._request.max_bytes, self._peer.services.config.fetch_max_bytes)
        return max(most if self._quota is None else self._quota.fetch_bytes_max(most), 1)

    def _has_min_bytes(self, session: ShareSession, read: ShareRead) -> bool:
        """True when as much as min_bytes may be acquired, or something is to be reported."""
        least = min(self._request.min_bytes, self._max_bytes())
        if least <= 1:
            return True
        total = 0
        for key in session.partitions:
            try:
                name = topic_name(self._peer.services, key)
                partition = located(self._peer.services, self._peer.session, key, name)
                led = self._shares.ready(self._group_id, partition)
                if led is not None:
                    total += read.available_bytes(led, least)
            except KafkaError:
                return True
            if total >= least:
                return True
        return False

    def _read(self, key: PartitionId, read: ShareRead) -> ShareRow | None:
        """The row of one partition; None: it is left out of the response."""
        services = self._peer.services
        name = topic_name(services, key)
        try:
            partition = located(services, self._peer.session, key, name)
            led = self._shares.ready(self._group_id, partition)
            if led is None or read.is_full:
                return None
            row = read.read(key, led)
        except KafkaError as error:
            return _failed(key, name, error)
        row.name = name
        return row if row.acquired else None

    def _complete_later(self, rows: list[ShareRow], read: ShareRead) -> Answer:
        """Read the rest from the disk or the Delta table, then answer."""
        self._leave_purgatory()
        if self._reply is None:
            self._reply = self._peer.park()
        for row in rows:
            if isinstance(row.records, FilePart):
                row.records.own()
        colds = [
            FilePart(part.file.fileno(), part.position, part.size_bytes).own()
            for _, _, part in read.later
            if part is not None
        ]
        self._peer.spawn(self._read_later(rows, read, colds))
        return self._reply

    async def _read_later(
        self, rows: list[ShareRow], read: ShareRead, colds: list[FilePart]
    ) -> None:
        try:
            if colds:
                await self._peer.services.warmer.warm(colds)
        finally:
            for part in colds:
                part.release()
        for later in list(read.later):
            session = self._session
            if session is None or session.is_closed:
                break
            row = await self._later_row(later, read)
            if row is not None:
                rows.append(row)
        if self._session is not None and self._session.is_closed:
            release_records(rows)  # given back meanwhile
            rows = []
        self._answer(rows)

    async def _later_row(self, later: Later, read: ShareRead) -> ShareRow | None:
        name = topic_name(self._peer.services, later.key)
        try:
            if later.led.is_over:
                return None
            if later.cold is None:
                session = self._session
                row = await read.read_remote(
                    later.key, later.led, lambda: session is None or not session.is_closed
                )
            else:
                row = read.read(later.key, later.led, is_warm=True)
        except KafkaError as error:
            return _failed(later.key, name, error)
        row.name = name
        if isinstance(row.records, FilePart):
            row.records.own()
        return row if row.acquired else None

    # --- waiting

    def _watch(self, keys: Iterable[PartitionId]) -> None:
        """Wait for the read bound to rise, and for what is released or expires."""
        services = self._peer.services
        for key in keys:
            partition = services.replicas.by_id.get(key)
            if partition is None or not partition.is_leader:
                continue
            led = self._shares.find(self._group_id, partition)
            committed = led.settings.share_isolation_level == "read_committed"
            bound = services.purgatories.watches.read_bound(
                partition, is_follower=False, committed=committed
            )
            self._wait_for(bound, bound.value + 1, key)
            self._wait_for(led.gauge, led.moves + 1, key)

    def _wait_for(self, gauge: WatchedOffset, threshold: int, key: PartitionId) -> None:
        if gauge not in self._gauges:
            self._gauges[gauge] = key
            gauge.add(threshold, self)

    def try_complete(self, watched: WatchedOffset) -> None:
        """Something moved: try again, or wait for the next move."""
        key = self._gauges.pop(watched, None)
        _, is_answered = self._try(is_last=False)
        if not is_answered and key is not None:
            self._watch([key])

    def on_expiration(self) -> None:
        """max_wait_ms is over."""
        self._try(is_last=True)

    def on_failure(self, error: Exception) -> None:
        """Close the connection, which gives back what was acquired."""
        self._let_go()
        self._peer.close(f"internal error: {error!r}")

    def _give_up(self) -> None:
        if self._peer.services.purgatories.fetch.complete(self):
            self._let_go()

    def _leave_purgatory(self) -> None:
        if self._reply is not None:
            self._reply.on_gone = None
        self._peer.services.purgatories.fetch.complete(self)

    def _let_go(self) -> None:
        self._gauges = {}
        self._session = self._reply = None

    # --- answering

    def _complete(self, rows: list[ShareRow]) -> Answer:
        self._leave_purgatory()
        return self._answer(rows)

    def _throttled(self, delay_ms: int) -> Answer:
        """Answer without records: the client repeats its fetch (KIP-219)."""
        self._peer.mute(delay_ms)
        if self._reply is not None and self._reply.timing is not None:
            self._reply.timing.throttle_s = delay_ms / 1000
        return self._answer([], delay_ms)

    def _answer(self, rows: list[ShareRow], delay_ms: int = 0) -> Answer:
        services, session = self._peer.services, self._session
        found = {row.key: row for row in rows}
        for row in rows:
            if row.acquired:
                services.meters.topic(row.name).bytes_out += row.records_bytes
                if self._quota is not None:
                    self._quota.fetched(row.records_bytes)
                if session is not None:
                    session.rotate(row.key)
            if row.code:
                services.meters.api(SHARE_FETCH).failed(row.code)
        for key, outcome in self._acknowledger.outcomes.items():
            row = found.setdefault(key, ShareRow(key))
            row.name = row.name or outcome.name
            row.acknowledge_code, row.acknowledge_message = outcome.code, outcome.message
        return self._reply_of(list(found.values()), None, delay_ms)

    def _reply_of(
        self, rows: list[ShareRow], error: KafkaError | None, delay_ms: int = 0
    ) -> Answer:
        """Resolve the parked reply, or return the answer of this call."""
        reply = ShareFetchReply(
            self._peer.services, self._correlation_id, self._peer.session.listener
        )
        lock_ms = self._shares.settings_of(self._group_id).share_record_lock_duration_ms
        if error is None:
            parts = reply.build(rows, lock_ms)
        else:
            parts = reply.build(rows, lock_ms, int(error.code), error.detail or None)
        if delay_ms:
            parts = with_throttle_time(parts, self._version, delay_ms)
        return self._give(parts)

    def _give(self, parts: list[Part]) -> Answer:
        if self._reply is None:
            only = parts[0]
            return only if len(parts) == 1 and isinstance(only, bytes) else parts
        for part in parts:
            if isinstance(part, FilePart):  # replies before it may be parked longer
                part.own()
        self._reply.resolve(parts)
        self._let_go()
        return None


def _failed(key: PartitionId, name: str, error: KafkaError) -> ShareRow:
    row = ShareRow(key)
    row.name = name
    row.code, row.message = int(error.code), error.detail or None
    return row
