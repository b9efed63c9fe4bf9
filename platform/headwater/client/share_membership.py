"""A share consumer's heartbeats, on the loop: it joins, stays and leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.client.cluster import Cluster
from headwater.client.core.share_member import AfterHeartbeat, ShareMember
from headwater.client.errors import kafka_error
from headwater.client.outages import OutageLog
from headwater.client.share_options import ShareConsumerOptions
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k76_share_group_heartbeat import ShareGroupHeartbeatResponse
from headwater.wire.schema import SchemaError

GROUP_LANE = "group"
HEARTBEAT_TIMEOUT_S = 10.0
LEAVE_TIMEOUT_S = 5.0


class ShareMembership:
    """Keeps one member in its group."""

    def __init__(
        self,
        cluster: Cluster,
        options: ShareConsumerOptions,
        member: ShareMember,
        on_assigned: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """`on_assigned` is called after each reply with another assignment, `on_failure` with what
        no retry can cure: the heartbeats end then."""
        self.member = member
        self.last_poll = cluster.clock.monotonic()
        self._cluster = cluster
        self._max_poll_s = options.max_poll_interval_ms / 1000
        self._on_assigned = on_assigned
        self._on_failure = on_failure
        self._coordinator = -1
        self._failure: Exception | None = None
        """The last error, until a heartbeat succeeds."""
        self._task: asyncio.Task[None] | None = None
        self._poke = asyncio.Event()

    def start(self) -> None:
        """Join, or tell the coordinator at once what has changed."""
        self._poke.set()
        if self.member.topics and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._send_heartbeats())

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def note_outages(self, outages: OutageLog) -> set[str]:
        """Note that the coordinator does not answer, if that is so; the group's name then."""
        error = self._failure
        if error is None:
            return set()
        name = f"share group {self.member.group_id}"
        code = getattr(error, "code", ErrorCode.NETWORK_EXCEPTION)
        cause = f"the group coordinator does not answer ({code.name})"
        unreachable = self._cluster.unreachable.get(self._coordinator)
        since = None if unreachable is None else unreachable.since
        outages.note(name, code, cause, str(error) or "no response in time", since=since)
        return {name}

    async def _send_heartbeats(self) -> None:
        attempt = 0
        while True:
            self._poke.clear()
            if self._cluster.clock.monotonic() - self.last_poll > self._max_poll_s:
                # What this member holds goes to others; the next poll joins again.
                await self.leave()
                self._on_assigned()
                return
            try:
                after = await self._send_heartbeat()
            except (OSError, SchemaError, ValueError) as e:
                self._failure, after = e, AfterHeartbeat.FIND_COORDINATOR
            except KafkaError as e:
                if not e.retriable and e.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                    self._fail(e)
                    return
                self._failure, after = e, AfterHeartbeat.FIND_COORDINATOR
            if after is AfterHeartbeat.WAIT:
                attempt = 0
                await self._wait(self.member.interval_s)
                continue
            if after is AfterHeartbeat.FAIL:
                member = self.member
                what = f"share group {member.group_id}"
                text = f"{what}: {member.detail}" if member.detail else what
                self._fail(kafka_error(member.error, text))
                return
            if after is AfterHeartbeat.FIND_COORDINATOR:
                self._coordinator = -1
            if after is not AfterHeartbeat.JOIN:
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1

    def _fail(self, error: KafkaError) -> None:
        self.member.leave()
        self._failure = None
        self._on_failure(error)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._poke.wait()
        except TimeoutError:
            pass  # the next heartbeat is due

    async def _send_heartbeat(self) -> AfterHeartbeat:
        member, before = self.member, self.member.assigned
        if self._coordinator not in self._cluster.cache.brokers:
            self._coordinator = await self._cluster.coordinator(member.group_id)
        connection = await self._cluster.connection(self._coordinator, GROUP_LANE)
        request = member.heartbeat()
        reply = await self._cluster.call_on(
            connection, request, ShareGroupHeartbeatResponse, timeout_s=HEARTBEAT_TIMEOUT_S
        )
        after = member.on_heartbeat(request, reply)
        if after in (AfterHeartbeat.FIND_COORDINATOR, AfterHeartbeat.RETRY):
            self._failure = kafka_error(member.error, "ShareGroupHeartbeat")
        else:
            self._failure = None
        if member.assigned != before:
            self._on_assigned()
        return after

    async def leave(self) -> None:
        """Leave the group, if it has this member: the session timeout does it otherwise."""
        member = self.member
        if member.is_joined and self._coordinator in self._cluster.cache.brokers:
            try:
                connection = await self._cluster.connection(self._coordinator, GROUP_LANE)
                await connection.call(
                    member.goodbye(), ShareGroupHeartbeatResponse, timeout_s=LEAVE_TIMEOUT_S
                )
            except (OSError, KafkaError, SchemaError):
                pass  # the session timeout removes the member
        member.leave()
