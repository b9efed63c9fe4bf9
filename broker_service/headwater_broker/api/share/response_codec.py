"""ShareFetch responses, versions 1 and 2: rows as bytes, records as copies or slices of files.

A test compares them with those of the codec, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.primitives import write_uvarint
from headwater.wire.primitives import writer as primitive_writer
from headwater_broker.api.context import Services
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.replies import FilePart, Part
from headwater_broker.replica.share.acquired_rows import Acquired
from headwater_broker.replica.share.sessions import PartitionId

LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
THROTTLE_AT = 9
"""Behind the size, the correlation id and the header's tagged fields."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">iiBih")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ROW = struct.Struct(">ih")
_LEADER = struct.Struct(">iiB")
_ACQUIRED = struct.Struct(">qqhB")
_WRITE_STRING = primitive_writer("string", compact=True, nullable=False)
_WRITE_NULLABLE = primitive_writer("string", compact=True, nullable=True)


class ShareRow:
    """One partition of a response."""

    __slots__ = (
        "acknowledge_code",
        "acknowledge_message",
        "acquired",
        "code",
        "key",
        "message",
        "name",
        "records",
    )

    def __init__(self, key: PartitionId) -> None:
        self.key = key
        self.name = ""
        """The topic's name, for leader hints; empty while it is unknown."""
        self.code = 0
        self.message: str | None = None
        self.acknowledge_code = 0
        self.acknowledge_message: str | None = None
        self.records: Part = b""
        self.acquired: Sequence[Acquired] = ()

    @property
    def records_bytes(self) -> int:
        """The size of the records."""
        return len(self.records) if isinstance(self.records, bytes) else self.records.size


def with_throttle_time(parts: Sequence[Part], version: int, delay_ms: int) -> list[Part]:
    """The response with at least this throttle_time_ms."""
    first = parts[0]
    assert isinstance(first, bytes)
    delay_ms = max(delay_ms, _INT32.unpack_from(first, THROTTLE_AT)[0])
    changed = first[:THROTTLE_AT] + _INT32.pack(delay_ms) + first[THROTTLE_AT + 4 :]
    return [changed, *parts[1:]]


def leader_hint(services: Services, name: str, row: int, code: int) -> tuple[int, int]:
    """Leader and leader epoch for a partition that moved; (0, 0), Kafka's default, for others."""
    state = services.view.partition(name, row) if name and code in LEADER_MOVED else None
    return (0, 0) if state is None else (state.leader_id, state.leader_epoch)


class ShareFetchReply:
    """Builds one framed reply; its parts are bytes and file slices in order."""

    def __init__(self, services: Services, correlation_id: int, listener: str) -> None:
        self._services = services
        self._correlation_id = correlation_id
        self._listener = listener
        self._parts: list[Part] = []
        self._out = bytearray()
        self._cut_bytes = 0
        self._leaders: set[int] = set()

    def build(
        self, rows: Iterable[ShareRow], lock_ms: int, code: int = 0, message: str | None = None
    ) -> list[Part]:
        """The whole reply. `lock_ms`: how long acquired records are locked."""
        out = self._out
        out += _HEAD.pack(0, self._correlation_id, 0, 0, code)
        _WRITE_NULLABLE(out, message)
        out += _INT32.pack(lock_ms)
        topics = by_topic(rows)
        write_uvarint(out, len(topics) + 1)
        for topic_id, members in topics.items():
            out += topic_id.bytes
            write_uvarint(out, len(members) + 1)
            for row in members:
                self._row(row)
            out.append(0)
        self._endpoints()
        out.append(0)
        return self._framed()

    def _row(self, row: ShareRow) -> None:
        out = self._out
        out += _ROW.pack(row.key[1], row.code)
        _WRITE_NULLABLE(out, row.message)
        out += _INT16.pack(row.acknowledge_code)
        _WRITE_NULLABLE(out, row.acknowledge_message)
        code = row.code or row.acknowledge_code
        leader, epoch = leader_hint(self._services, row.name, row.key[1], code)
        if code in LEADER_MOVED:
            self._leaders.add(leader)
        out += _LEADER.pack(leader, epoch, 0)
        write_uvarint(out, row.records_bytes + 1)
        if isinstance(row.records, bytes):
            out += row.records
        else:
            self._cut()
            self._parts.append(row.records)
            self._cut_bytes += row.records.size
        write_uvarint(out, len(row.acquired) + 1)
        for first, last, count in row.acquired:
            out += _ACQUIRED.pack(first, last, min(count, 2**15 - 1), 0)
        out.append(0)

    def _endpoints(self) -> None:
        out = self._out
        nodes = endpoints(self._services, self._listener, self._leaders)
        write_uvarint(out, len(nodes) + 1)
        for node in nodes:
            out += _INT32.pack(node.node_id)
            _WRITE_STRING(out, node.host)
            out += _INT32.pack(node.port)
            _WRITE_NULLABLE(out, node.rack)
            out.append(0)

    def _cut(self) -> None:
        self._parts.append(bytes(self._out))
        self._cut_bytes += len(self._out)
        self._out.clear()

    def _framed(self) -> list[Part]:
        self._cut()
        first = self._parts[0]
        assert isinstance(first, bytes)
        self._parts[0] = _SIZE.pack(self._cut_bytes - 4) + first[4:]
        return self._parts


def by_topic(rows: Iterable[ShareRow]) -> dict[UUID, list[ShareRow]]:
    """The rows of each topic."""
    topics: dict[UUID, list[ShareRow]] = {}
    for row in rows:
        topics.setdefault(row.key[0], []).append(row)
    return topics


def release_records(rows: Iterable[ShareRow]) -> None:
    """Close the files of rows that are not sent."""
    for row in rows:
        if isinstance(row.records, FilePart):
            row.records.release()
