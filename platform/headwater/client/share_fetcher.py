"""A share consumer's requests to leaders, on the loop: ShareFetch, ShareAcknowledge.

A leader is asked for records only while a caller waits for some: the time of a lock runs from the
moment that a record is acquired. One request at a time is in flight per leader, on a connection
of its own: its end is the end of the share session.
"""

from __future__ import annotations

import asyncio
import logging

from headwater.client.change_signal import ChangeSignal
from headwater.client.cluster import Cluster
from headwater.client.core.metadata import NO_LEADER
from headwater.client.core.share_consumer import Refused, ShareConsumerState
from headwater.client.core.share_member import ShareMember
from headwater.client.core.share_session import (
    RENEW_VERSION,
    FetchLimits,
    Place,
    ShareSession,
)
from headwater.client.errors import kafka_error
from headwater.client.outages import OutageLog
from headwater.client.share_options import RECORD_LIMIT, ShareConsumerOptions
from headwater.client.values import Broker, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k78_share_fetch import ShareFetchRequest, ShareFetchResponse
from headwater.wire.apis.k79_share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from headwater.wire.schema import SchemaError

SHARE_LANE = "share"
CLOSE_TIMEOUT_S = 5.0
_REFRESH = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    )
)
_PASSING = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.BROKER_NOT_AVAILABLE))
"""Not retriable by their table, but the next heartbeat or refresh cures them."""
Wanted = dict[Place, TopicPartition]

log = logging.getLogger(__name__)


class ShareFetcher:
    """The requests of one share consumer to the leaders of its partitions."""

    def __init__(
        self,
        cluster: Cluster,
        options: ShareConsumerOptions,
        member: ShareMember,
        state: ShareConsumerState,
        changes: ChangeSignal,
    ) -> None:
        self._demand = 0
        """How many records a caller waits for; 0 while none does."""
        self._demand_until = 0.0
        """Until when, in monotonic seconds."""
        self._asked: set[int] = set()
        """Nodes that were asked for them: after that time each is asked once at least."""
        self._cluster = cluster
        self._options = options
        self._member = member
        self._state = state
        self._changes = changes
        self._wanted: dict[int, Wanted] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._turns: dict[int, int] = {}
        """By node id, the number of its last ShareFetch."""
        self._fetches = 0
        self._not_before: dict[Place, float] = {}
        self._failing: dict[TopicPartition, KafkaError] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._is_closing = False

    def ask(self, records: int, until: float, *, is_new: bool) -> None:
        """A caller waits for records; `is_new`: it has just begun. With the lock held."""
        self._demand, self._demand_until = records, until
        if is_new:
            self._asked.clear()

    def ask_no_more(self) -> None:
        """There are records. With the lock held."""
        self._demand = 0

    # --- what to do next ----------------------------------------------------------------------

    def wake(self) -> None:
        """Look again: demand, acknowledgements, assignment or leaders have changed."""
        cache = self._cluster.cache
        wanted: dict[int, Wanted] = {}
        for place in self._member.assigned:
            name = cache.names.get(place.topic_id)
            node = NO_LEADER if name is None else cache.leader(name, place.partition)
            if name is None or node not in cache.brokers:
                self._request_metadata()
            else:
                wanted.setdefault(node, {})[place] = TopicPartition(name, place.partition)
        self._wanted = wanted
        for node in wanted.keys() | self._state.sessions.keys():
            task = self._tasks.get(node)
            if task is None or task.done():
                self._wakes[node] = asyncio.Event()
                self._tasks[node] = asyncio.create_task(self._serve(node))
            self._wakes[node].set()

    def assigned(self) -> list[TopicPartition]:
        """The assigned partitions whose names are known, sorted."""
        return sorted(tp for rows in self._wanted.values() for tp in rows.values())

    async def _serve(self, node_id: int) -> None:
        """Send a node's requests, one after another."""
        wake, attempt = self._wakes[node_id], 0
        while not self._is_closing:
            wake.clear()
            with self._changes.condition:
                request = self._next_request(node_id)
            if request is None:
                await wake.wait()
            elif await self._send(node_id, request):
                attempt = 0
                self.wake()  # with record limits another node may have its turn
            else:
                self._request_metadata()
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1

    def _next_request(self, node_id: int) -> ShareFetchRequest | ShareAcknowledgeRequest | None:
        state, now = self._state, self._cluster.clock.monotonic()
        session = state.sessions.get(node_id)
        wanted = {
            place: tp
            for place, tp in self._wanted.get(node_id, {}).items()
            if self._not_before.get(place, 0.0) <= now
        }
        is_asked_for = now < self._demand_until or node_id not in self._asked
        may_fetch = bool(self._demand and wanted) and is_asked_for and self._has_turn(node_id)
        if session is not None and session.has_waiting and session.is_flushing:
            if session.not_before > now:
                self._wake_later(session.not_before - now)
                return None
            if not may_fetch or session.needs_acknowledge:
                return state.acknowledge_request(node_id)
        if not may_fetch:
            return None
        self._asked.add(node_id)
        self._fetches += 1
        self._turns[node_id] = self._fetches
        left_ms = int((self._demand_until - now) * 1000)
        longest = self._options.fetch_max_wait_ms
        limits = FetchLimits(
            max_wait_ms=longest if left_ms <= 0 else min(longest, left_ms),
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            max_records=self._demand,
            acquire_mode=self._options.share_acquire_mode,
        )
        return state.fetch_request(node_id, wanted, limits)

    def _has_turn(self, node_id: int) -> bool:
        """With record limits one node at a time is asked, the one that waits longest."""
        if self._options.share_acquire_mode != RECORD_LIMIT:
            return True
        if any(True for _ in self._state.fetching_nodes()):
            return False
        return node_id == min(self._wanted, key=lambda node: (self._turns.get(node, 0), node))

    def _wake_later(self, delay_s: float) -> None:
        asyncio.get_running_loop().call_later(delay_s, self.wake)

    # --- requests -----------------------------------------------------------------------------

    async def _send(
        self, node_id: int, request: ShareFetchRequest | ShareAcknowledgeRequest
    ) -> bool:
        """Send one request and apply its response; False when it failed."""
        session = self._state.sessions[node_id]
        try:
            if isinstance(request, ShareFetchRequest):
                await self._fetch(session, request)
            else:
                await self._acknowledge(session, request, self._options.request_timeout_ms / 1000)
        except (OSError, SchemaError, ValueError) as e:
            text = str(e) or "no response in time"
            self._lose(session, kafka_error(ErrorCode.NETWORK_EXCEPTION, text))
            return False
        except KafkaError as e:
            self._lose(session, e, is_fatal=not (e.retriable or e.code in _PASSING))
            return False
        except asyncio.CancelledError:
            text = "the consumer was closed before the response"
            self._lose(session, kafka_error(ErrorCode.NETWORK_EXCEPTION, text))
            raise
        return True

    def _lose(self, session: ShareSession, error: KafkaError, *, is_fatal: bool = False) -> None:
        with self._changes.condition:
            self._state.lose(session, error)
            if is_fatal:
                self._state.failure = error
            self._changes.notify_locked()

    async def _fetch(self, session: ShareSession, request: ShareFetchRequest) -> None:
        connection = await self._cluster.connection(session.node_id, SHARE_LANE)
        version = connection.version_for(ShareFetchRequest)
        if request.share_acquire_mode and version < RENEW_VERSION:
            text = "this broker has no record limits: leave share_acquire_mode at batch_optimized"
            raise kafka_error(ErrorCode.UNSUPPORTED_VERSION, text)
        limit_s = (self._options.request_timeout_ms + request.max_wait_ms) / 1000
        reply = await self._cluster.call_on(
            connection, request, ShareFetchResponse, version=version, timeout_s=limit_s
        )
        if reply.error_code:
            text = reply.error_message or f"ShareFetch from broker {session.node_id}"
            raise kafka_error(reply.error_code, text)
        for endpoint in reply.node_endpoints:
            self._cluster.cache.add_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        now = self._cluster.clock.monotonic()
        asked = self._wanted.get(session.node_id, {}).values()
        with self._changes.condition:
            refused = self._state.on_fetch(session, reply, now)
            for tp in asked:
                self._failing.pop(tp, None)
            for row in refused:
                self._refuse(row, now)
            if any(p.acquired_records for topic in reply.responses for p in topic.partitions):
                self.ask_no_more()  # whoever waits looks first at what has come
            self._changes.notify_locked()

    async def _acknowledge(
        self, session: ShareSession, request: ShareAcknowledgeRequest, limit_s: float
    ) -> None:
        connection = await self._cluster.connection(session.node_id, SHARE_LANE)
        version = connection.version_for(ShareAcknowledgeRequest)
        if request.is_renew_ack and version < RENEW_VERSION:
            text = "this broker renews no locks: raise share.record.lock.duration.ms of the group"
            raise kafka_error(ErrorCode.UNSUPPORTED_VERSION, text)
        reply = await self._cluster.call_on(
            connection, request, ShareAcknowledgeResponse, version=version, timeout_s=limit_s
        )
        if reply.error_code:
            text = reply.error_message or f"ShareAcknowledge to broker {session.node_id}"
            raise kafka_error(reply.error_code, text)
        with self._changes.condition:
            now = self._cluster.clock.monotonic()
            self._state.on_acknowledge(session, reply, now)
            if session.failures:
                session.not_before = now + self._cluster.backoff_s(max(session.failures.values()))
            self._changes.notify_locked()

    def _refuse(self, row: Refused, now: float) -> None:
        """A partition was not fetched."""
        cache, tp = self._cluster.cache, row.partition
        error = kafka_error(row.code, f"{tp.topic}-{tp.partition}: {row.detail}".rstrip(": "))
        if not error.retriable and row.code not in _REFRESH:
            self._state.failure = error
            return
        self._failing[tp] = error
        if cache.move_leader(*tp, row.leader_id, row.leader_epoch):
            return
        topic = cache.topics.get(tp.topic)
        if topic is not None:
            pause_s = self._cluster.backoff_s(1)
            self._not_before[Place(topic.topic_id, tp.partition)] = now + pause_s
            self._wake_later(pause_s)
        if row.code in _REFRESH:
            self._request_metadata()

    # --- metadata and outages -----------------------------------------------------------------

    def _request_metadata(self) -> None:
        if not self._is_closing and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh(self._member.topics)
        except KafkaError as e:
            log.debug("refresh of the subscribed topics: %s", e)
        await asyncio.sleep(self._cluster.backoff_s(1))
        self._wake_later(0)

    def note_outages(self, outages: OutageLog) -> set[str]:
        """Note the partitions that cannot be read now; their names."""
        found: set[str] = set()
        for node, rows in self._wanted.items():
            unreachable = self._cluster.unreachable.get(node)
            for tp in rows.values():
                name = f"{tp.topic}-{tp.partition}"
                failing = self._failing.get(tp)
                if unreachable is not None:
                    code, text = ErrorCode.NETWORK_EXCEPTION, f"broker {node} is not reachable"
                    outages.note(name, code, text, unreachable.reason, since=unreachable.since)
                elif failing is not None:
                    text = f"broker {node} fails ({failing.code.name})"
                    outages.note(name, failing.code, text, failing.detail)
                else:
                    continue
                found.add(name)
        return found

    # --- the end ------------------------------------------------------------------------------

    async def close_sessions(self) -> None:
        """Send the acknowledgements that wait, and release everything else that is acquired."""
        self._is_closing, self._demand = True, 0
        for event in self._wakes.values():
            event.set()
        tasks = [task for task in self._tasks.values() if not task.done()]
        if tasks:
            # A parked ShareFetch ends by itself; its session can be closed only then.
            limit_s = self._options.fetch_max_wait_ms / 1000 + CLOSE_TIMEOUT_S
            _, late = await asyncio.wait(tasks, timeout=limit_s)
            for task in late:
                task.cancel()
        with self._changes.condition:
            sessions = self._state.forget_all()
        await asyncio.gather(*(self._close_session(session) for session in sessions))
        self._tasks, self._wanted = {}, {}
        self._state.sessions.clear()
        self._is_closing = False

    async def _close_session(self, session: ShareSession) -> None:
        with self._changes.condition:
            request = self._state.acknowledge_request(session.node_id, close=True)
        try:
            await self._acknowledge(session, request, CLOSE_TIMEOUT_S)
        except (OSError, SchemaError, ValueError) as e:
            text = str(e) or "no response in time"
            self._lose(session, kafka_error(ErrorCode.NETWORK_EXCEPTION, text))
        except KafkaError as e:
            self._lose(session, e)

    def stop(self) -> None:
        """End every task."""
        self._is_closing = True
        for task in (*self._tasks.values(), self._refreshing):
            if task is not None:
                task.cancel()
