"""Members of groups that cost little: real sockets, the protocol, no records.

Many members share a connection, as a broker does not mind: what is measured is the coordinator.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from uuid import UUID

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k09_offset_fetch as k09
from headwater.wire.apis import k10_find_coordinator as k10
from headwater.wire.apis import k11_join_group as k11
from headwater.wire.apis import k12_heartbeat as k12
from headwater.wire.apis import k14_sync_group as k14
from headwater.wire.apis import k68_consumer_group_heartbeat as k68
from headwater.wire.framing import decode_response, encode_request

Place = tuple[UUID, int]

CALL_S = 30.0
FIND_S = 60.0
HEARTBEAT_VERSION = 1
CORRELATION_AT, CORRELATION_END = 4, 8
"""Where a request has its correlation id; a response begins with it."""
SESSION_MS = 45_000
REBALANCE_MS = 60_000
OFFSETS_VERSION = 9
LOOKUP_KEYS = 500
AGAIN_S = 0.05
LATER = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
     ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)  # fmt: skip
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
PROTOCOL = k11.JoinGroupRequestProtocol(name="bench", metadata=b"")


class Addresses:
    """Connections by address, and the coordinators of groups."""

    def __init__(self, bootstrap: str, per_address: int = 1) -> None:
        self._bootstrap = bootstrap.split(",")
        self._per_address = per_address
        self._open: dict[tuple[str, int], list[Connection]] = {}
        self.of_group: dict[str, str] = {}
        """Group -> host:port of its coordinator."""

    async def connection(self, address: str, number: int = 0) -> Connection:
        """The n-th connection to an address."""
        host, _, port = address.rpartition(":")
        rows = self._open.setdefault((address, number % self._per_address), [])
        if not rows or not rows[0].is_open:
            rows[:] = [await open_connection(host, int(port), timeout_s=CALL_S)]
        return rows[0]

    async def find(self, groups: Sequence[str], but: str = "") -> None:
        """Look up until each of these groups has a coordinator. `but`: a dead one. Raises
        RuntimeError when some have none in time."""
        missing, end = list(groups), time.monotonic() + FIND_S
        while missing:
            for at in range(0, len(missing), LOOKUP_KEYS):
                keys = tuple(missing[at : at + LOOKUP_KEYS])
                await self._ask_for(keys, but)
            missing = [g for g in missing if self.of_group.get(g, but) == but]
            if missing and time.monotonic() > end:
                raise RuntimeError(
                    f"{len(missing):,} of {len(groups):,} groups have no coordinator after "
                    f"{FIND_S:g} s, {missing[0]} among them"
                )
            if missing:
                await asyncio.sleep(0.02)

    async def _ask_for(self, keys: tuple[str, ...], but: str) -> None:
        request = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=keys)
        for address in self._bootstrap:
            if address == but:
                continue
            try:
                connection = await self.connection(address)
                reply = await connection.call(
                    request, k10.FindCoordinatorResponse, timeout_s=CALL_S
                )
            except OSError:
                continue
            for row in reply.coordinators:
                if not row.error_code:
                    self.of_group[row.key] = f"{row.host}:{row.port}"
            return

    def close(self) -> None:
        """Close all connections."""
        for rows in self._open.values():
            for connection in rows:
                connection.close()


@dataclass(slots=True)
class Modern:
    """One member with the consumer protocol."""

    group: str
    name: str
    topic: str
    epoch: int = 0
    owned: frozenset[Place] = frozenset()
    interval_s: float = 0.0
    must_tell: bool = True
    changed_s: float = 0.0
    """When its epoch or its partitions changed last."""
    latencies: list[float] = field(default_factory=list)
    fences: int = 0
    """How often it had to join again."""

    asked_s: float = 0.0
    """Since when a heartbeat of it waits for its reply; 0: none does."""
    _frame: bytes = b""
    _frame_of: tuple[int, bool] | None = None
    _steady_reply: bytes = b""

    async def beat(self, connection: Connection) -> ErrorCode:
        """One heartbeat."""
        began = time.monotonic()
        reply = await connection.call(
            self._request(),
            k68.ConsumerGroupHeartbeatResponse,
            version=HEARTBEAT_VERSION,
            timeout_s=CALL_S,
        )
        return self._adopt(reply, began)

    def pulse(self, connection: Connection) -> asyncio.Future[memoryview]:
        """Send a heartbeat, the same frame while nothing changes: thousands of members share two
        cores with the brokers. Its reply is for `adopt_pulse`."""
        state = self.epoch, self.must_tell
        if self._frame_of != state:
            self._frame = encode_request(
                self._request(), HEARTBEAT_VERSION, 0, connection.client_id
            )
            self._frame_of, self._steady_reply = state, b""
        self.asked_s = time.monotonic()
        correlation_id = struct.pack(">i", connection.next_correlation_id())
        return connection.post(
            self._frame[:CORRELATION_AT], correlation_id, self._frame[CORRELATION_END:]
        )

    def adopt_pulse(self, raw: memoryview) -> None:
        """The reply of `pulse`; one like the last is not decoded. Raises RuntimeError for an
        error."""
        began, self.asked_s = self.asked_s, 0.0
        if raw[4:] == self._steady_reply:
            self.latencies.append(time.monotonic() - began)
            return
        correlation_id = int.from_bytes(raw[:4], "big")
        reply = decode_response(
            k68.ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION, raw, correlation_id
        )
        epoch = self.epoch
        code = self._adopt(reply, began)
        is_steady = code is ErrorCode.NONE and self.epoch == epoch and not self.must_tell
        self._steady_reply = bytes(raw[4:]) if is_steady else b""

    def _request(self) -> k68.ConsumerGroupHeartbeatRequest:
        joins = self.epoch == 0
        return k68.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            subscribed_topic_names=(self.topic,) if joins else None,
            topic_partitions=_rows(self.owned) if joins or self.must_tell else None,
        )

    def _adopt(self, reply: k68.ConsumerGroupHeartbeatResponse, began: float) -> ErrorCode:
        now = time.monotonic()
        self.latencies.append(now - began)
        code = ErrorCode(reply.error_code)
        if code in FENCED:
            self.epoch, self.owned, self.must_tell = 0, frozenset(), True
            self.fences += 1
            return code
        if code is not ErrorCode.NONE:
            if code not in LATER:
                raise RuntimeError(f"{self.name} of {self.group}: heartbeat got {code.name}")
            return code
        self.must_tell = False
        self.interval_s = reply.heartbeat_interval_ms / 1000
        if reply.member_epoch != self.epoch:
            self.epoch, self.changed_s = reply.member_epoch, now
        if reply.assignment is not None:
            told = reply.assignment.topic_partitions
            target = frozenset((row.topic_id, index) for row in told for index in row.partitions)
            self.must_tell = target != self.owned
            if self.must_tell:
                self.owned, self.changed_s = target, now
        return code

    async def live(self, connection: Connection, until: asyncio.Event) -> None:
        """Join and heartbeat, at once when there is something to tell."""
        while not until.is_set():
            code = await self.beat(connection)
            pause_s = AGAIN_S if code is not ErrorCode.NONE else self.interval_s
            if not self.must_tell:
                await asyncio.sleep(pause_s)


def has_settled(members: Sequence[Modern]) -> bool:
    """True when all are at one epoch with one partition each. Their sum would not do: who joins
    before the next target is due gets the last one's epoch, and the first member has them all."""
    epochs = {member.epoch for member in members}
    told = not any(member.must_tell for member in members)
    return len(epochs) == 1 and 0 not in epochs and told and all(len(m.owned) == 1 for m in members)


def _rows(owned: Iterable[Place]) -> tuple[k68.TopicPartitions, ...]:
    found = groupby(sorted(owned), key=lambda place: place[0])
    return tuple(
        k68.TopicPartitions(topic_id=topic, partitions=tuple(index for _, index in rows))
        for topic, rows in found
    )


@dataclass(slots=True)
class Classic:
    """One member with the classic protocol, as Java's of today: its assignment is bytes."""

    group: str
    name: str = ""
    generation: int = -1
    changed_s: float = 0.0

    async def live(self, connection: Connection, until: asyncio.Event) -> None:
        """Join, sync, heartbeat; join again when the group rebalances. Joins park a connection."""
        while not until.is_set():
            await self._join(connection)
            while not until.is_set():
                await asyncio.sleep(HEARTBEAT_S)
                request = k12.HeartbeatRequest(
                    group_id=self.group, generation_id=self.generation, member_id=self.name
                )
                reply = await connection.call(request, k12.HeartbeatResponse, timeout_s=CALL_S)
                if reply.error_code:
                    _check(reply.error_code, self.name)
                    break

    async def _join(self, connection: Connection) -> None:
        while True:
            request = k11.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.name,
                protocol_type="bench",
                protocols=(PROTOCOL,),
            )
            joined = await connection.call(request, k11.JoinGroupResponse, timeout_s=CALL_S)
            self.name = joined.member_id or self.name
            if joined.error_code:
                _check(joined.error_code, self.name)
                continue
            rows = tuple(
                k14.SyncGroupRequestAssignment(member_id=row.member_id, assignment=b"given")
                for row in joined.members
            )
            sync = k14.SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=self.name,
                protocol_type="bench",
                protocol_name="bench",
                assignments=rows if joined.leader == self.name else (),
            )
            reply = await connection.call(sync, k14.SyncGroupResponse, timeout_s=CALL_S)
            if not reply.error_code:
                self.generation, self.changed_s = joined.generation_id, time.monotonic()
                return
            _check(reply.error_code, self.name)


HEARTBEAT_S = 0.5
JOINS_AGAIN = frozenset(
    {ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
)


def _check(code: int, name: str) -> None:
    if ErrorCode(code) not in LATER | JOINS_AGAIN:
        raise RuntimeError(f"{name}: {ErrorCode(code).name}")


async def commit(connection: Connection, member: Modern, topic: str, offset: int) -> None:
    """Commit one offset of each partition that the member owns, which is one at least. Raises
    RuntimeError when the coordinator refuses it, or puts it off for too long."""
    if not member.owned:
        raise RuntimeError(f"{member.name} of {member.group} owns nothing to commit an offset of")
    rows = tuple(
        k08.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        for _, index in sorted(member.owned)
    )
    request = k08.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.name,
        topics=(k08.OffsetCommitRequestTopic(name=topic, partitions=rows),),
    )
    end = time.monotonic() + CALL_S
    while True:
        reply = await connection.call(
            request, k08.OffsetCommitResponse, version=OFFSETS_VERSION, timeout_s=CALL_S
        )
        codes = {ErrorCode(p.error_code) for t in reply.topics for p in t.partitions}
        if codes == {ErrorCode.NONE}:
            return
        if not codes <= LATER | {ErrorCode.NONE} or time.monotonic() > end:
            raise RuntimeError(f"{member.name} of {member.group}: commit got {codes}")
        await asyncio.sleep(AGAIN_S)


async def committed(
    connection: Connection, groups: Sequence[str]
) -> dict[str, dict[int, int] | ErrorCode]:
    """The committed offsets of groups that one broker coordinates, by partition; or its refusal."""
    rows = tuple(k09.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups)
    request = k09.OffsetFetchRequest(groups=rows, require_stable=True)
    reply = await connection.call(
        request, k09.OffsetFetchResponse, version=OFFSETS_VERSION, timeout_s=CALL_S
    )
    return {
        row.group_id: ErrorCode(row.error_code)
        if row.error_code
        else {p.partition_index: p.committed_offset for t in row.topics for p in t.partitions}
        for row in reply.groups
    }
