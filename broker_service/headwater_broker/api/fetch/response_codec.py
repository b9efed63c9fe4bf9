"""Fetch responses, versions 4 to 18: headers as bytes, records as copies or slices of files.

`encode_plain` writes a response of one partition without an error, up to its records; `FetchReply`
writes every response. A test compares them, byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headwater.errors import ErrorCode
from headwater.wire.primitives import write_tagged, write_uvarint
from headwater.wire.primitives import writer as primitive_writer
from headwater_broker.api.context import Services
from headwater_broker.api.fetch.read import PartitionRead, part_of_file
from headwater_broker.api.fetch.replica_selector import LEADER
from headwater_broker.api.fetch.request_codec import FLEXIBLE, RACK_SINCE, SESSIONS_SINCE
from headwater_broker.api.fetch_session.partition import TopicKey
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.replies import FilePart, Part
from headwater_broker.log.results import LogSlice
from headwater_broker.replica.partition import Partition

LOG_START_SINCE = 5
STORAGE_ERROR_SINCE = 6
"""Older clients do not know KAFKA_STORAGE_ERROR and would not try again: as in Kafka they read
NOT_LEADER_OR_FOLLOWER, which has them refresh their metadata (KIP-112)."""
ENDPOINTS_SINCE = 16
TAG_DIVERGING = 0
TAG_LEADER = 1
LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_SIZE = struct.Struct(">i")
# Size, correlation id, throttle time, error and session id (since 7); topics (since 12 a varint).
_HEAD_V4 = struct.Struct(">iiii")
_HEAD_V7 = struct.Struct(">iiihii")
_HEAD_V12 = struct.Struct(">iiBihi")
# Index, error, high watermark, last stable offset, log start offset (since 5).
_PART_V4 = struct.Struct(">ihqq")
_PART_V5 = struct.Struct(">ihqqq")
# A partition alone in its topic: partitions, as above, aborted transactions, preferred replica
# (since 11), size of the records (since 12 a varint).
_ALONE_V4 = struct.Struct(">iihqqii")
_ALONE_V5 = struct.Struct(">iihqqqii")
_ALONE_V11 = struct.Struct(">iihqqqiii")
_ALONE_V12 = struct.Struct(">BihqqqBi")
END_PLAIN_FLEXIBLE = bytes(3)
"""Behind the records of a plain response: tags of the partition, of the topic, of the response."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL = b"\xff\xff\xff\xff"
_NULL_FLEXIBLE = b"\0"
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqB")
_EPOCH_END = struct.Struct(">iqB")
_LEADER = struct.Struct(">iiB")


def encode_plain(
    version: int,
    correlation_id: int,
    session_id: int,
    field: bytes,
    partition: Partition,
    isolation: int,
    size: int,
) -> bytes:
    """The response of one partition without an error, up to its `size` bytes of records.

    `field` is the topic as it came in the request. No transaction was aborted in the records.
    Since version 12 END_PLAIN_FLEXIBLE follows the records.
    """
    index = partition.partition
    high, stable = partition.high_watermark, partition.last_stable_offset
    start = partition.log.log_start_offset
    if version >= FLEXIBLE:
        row = _ALONE_V12.pack(2, index, 0, high, stable, start, 1 if isolation else 0, LEADER)
        length = bytearray()
        write_uvarint(length, size + 1)
        rest = 1 + len(field) + len(row) + len(length) + size + len(END_PLAIN_FLEXIBLE)
        head = _HEAD_V12.pack(rest + _HEAD_V12.size - 4, correlation_id, 0, 0, 0, session_id)
        return b"".join((head, b"\2", field, row, length))
    aborted = 0 if isolation else -1
    if version >= RACK_SINCE:
        row = _ALONE_V11.pack(1, index, 0, high, stable, start, aborted, LEADER, size)
    elif version >= LOG_START_SINCE:
        row = _ALONE_V5.pack(1, index, 0, high, stable, start, aborted, size)
    else:
        row = _ALONE_V4.pack(1, index, 0, high, stable, aborted, size)
    rest = len(field) + len(row) + size
    if version >= SESSIONS_SINCE:
        head = _HEAD_V7.pack(rest + _HEAD_V7.size - 4, correlation_id, 0, 0, session_id, 1)
    else:
        head = _HEAD_V4.pack(rest + _HEAD_V4.size - 4, correlation_id, 0, 1)
    return head + field + row


def topic_field(topic: TopicKey, version: int) -> bytes:
    """The name or id of a topic as it stands in a response, and stood in the request."""
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    if version < FLEXIBLE:
        return _INT16.pack(len(name)) + name
    length = bytearray()
    write_uvarint(length, len(name) + 1)
    return bytes(length) + name


def with_throttle_time(parts: Sequence[Part], version: int, delay_ms: int) -> list[Part]:
    """The response with at least this throttle_time_ms."""
    first = parts[0]
    assert isinstance(first, bytes)
    at = 9 if version >= FLEXIBLE else 8  # behind size, correlation id, tagged fields
    delay_ms = max(delay_ms, _INT32.unpack_from(first, at)[0])
    return [first[:at] + _INT32.pack(delay_ms) + first[at + 4 :], *parts[1:]]


class FetchReply:
    """Builds one framed reply; `parts` are bytes and file slices in order."""

    __slots__ = (
        "_correlation_id",
        "_file_bytes",
        "_leaders",
        "_listener",
        "_out",
        "_parts",
        "_services",
        "_session_id",
        "_version",
        "cold",
    )

    def __init__(
        self, services: Services, version: int, correlation_id: int, session_id: int, listener: str
    ) -> None:
        self._services = services
        self._version = version
        self._correlation_id = correlation_id
        self._session_id = session_id
        self._listener = listener
        self._parts: list[Part] = []
        self._out = bytearray()
        self._file_bytes = 0
        self._leaders: set[int] = set()
        self.cold: list[FilePart] = []
        """Slices that a disk thread must bring in before they may be sent."""

    def build(self, reads: list[PartitionRead], code: int = 0) -> list[Part]:
        """The whole reply: consecutive partitions of one topic share its entry."""
        groups = [(reads[0].item.topic, reads)] if len(reads) == 1 else _by_topic(reads)
        flexible = self._version >= FLEXIBLE
        self._head(code, len(groups))
        for topic, members in groups:
            self._topic(topic, len(members))
            for read in members:
                self._partition(read, flexible)
            if flexible:
                self._out.append(0)
        if flexible:
            self._end()
        return self._framed()

    def _head(self, code: int, topics: int) -> None:
        correlation_id, session_id = self._correlation_id, self._session_id
        if self._version >= FLEXIBLE:
            self._out += _HEAD_V12.pack(0, correlation_id, 0, 0, code, session_id)
            write_uvarint(self._out, topics + 1)
        elif self._version >= SESSIONS_SINCE:
            self._out += _HEAD_V7.pack(0, correlation_id, 0, code, session_id, topics)
        else:
            self._out += _HEAD_V4.pack(0, correlation_id, 0, topics)

    def _topic(self, topic: TopicKey, partitions: int) -> None:
        self._out += topic_field(topic, self._version)
        if self._version >= FLEXIBLE:
            write_uvarint(self._out, partitions + 1)
        else:
            self._out += _INT32.pack(partitions)

    def _partition(self, read: PartitionRead, flexible: bool) -> None:
        out, version = self._out, self._version
        payload = self._payload(read)  # first: what cannot be read is an error in the row
        index, high, stable = read.item.partition, read.high_watermark, read.last_stable_offset
        code = read.code
        if code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= LOG_START_SINCE:
            out += _PART_V5.pack(index, code, high, stable, read.log_start_offset)
        else:
            out += _PART_V4.pack(index, code, high, stable)
        if read.aborted is None:
            out += _NULL_FLEXIBLE if flexible else _NULL
        else:
            self._aborted(read.aborted, flexible)
        if version >= RACK_SINCE:
            out += _INT32.pack(read.preferred)
        size = len(payload) if isinstance(payload, bytes) else payload.size
        if flexible:
            write_uvarint(out, size + 1)
        else:
            out += _INT32.pack(size)
        if isinstance(payload, bytes):
            out += payload
        else:
            self._file(payload)
        if flexible:
            self._partition_tags(read)

    def _aborted(self, aborted: list[tuple[int, int]], flexible: bool) -> None:
        out = self._out
        if not flexible:
            out += _INT32.pack(len(aborted))
            for producer_id, first_offset in aborted:
                out += _ABORTED.pack(producer_id, first_offset)
            return
        write_uvarint(out, len(aborted) + 1)
        for producer_id, first_offset in aborted:
            out += _ABORTED_FLEXIBLE.pack(producer_id, first_offset, 0)

    def _payload(self, read: PartitionRead) -> Part:
        """The records, or where to send them from; empty where the disk does not give them."""
        if read.remote is not None:
            fd, position, size = read.remote
            return FilePart(fd, position, size, owned=True)
        part = read.slice
        if part.data is not None or not part.size_bytes:
            return part.data or b""
        try:
            assert read.partition is not None
            return self._of_file(read.partition, part)
        except OSError as error:
            read.lose_disk(error)
            return b""

    def _of_file(self, partition: Partition, part: LogSlice) -> Part:
        found = part_of_file(self._services, partition, part)
        if found is None:
            found = FilePart(part.file.fileno(), part.position, part.size_bytes).own()
            self.cold.append(found)
        return found

    def _file(self, part: FilePart) -> None:
        self._cut()
        self._parts.append(part)
        self._file_bytes += part.size

    def _cut(self) -> None:
        if self._out:
            self._parts.append(bytes(self._out))
            self._file_bytes += len(self._out)
            self._out.clear()

    def _partition_tags(self, read: PartitionRead) -> None:
        if not read.code and read.diverging is None:
            self._out.append(0)
            return
        rows = []
        if read.diverging is not None:
            end = _EPOCH_END.pack(read.diverging.epoch, read.diverging.end_offset, 0)
            rows.append((TAG_DIVERGING, _write_raw, end))
        if read.code in LEADER_MOVED:
            state = self._services.view.partition(read.name, read.item.partition)
            if state is not None and state.leader_id >= 0:
                self._leaders.add(state.leader_id)
                leader = _LEADER.pack(state.leader_id, state.leader_epoch, 0)
                rows.append((TAG_LEADER, _write_raw, leader))
        write_tagged(self._out, rows)

    def _end(self) -> None:
        """The reply's own tagged fields: where the leaders are (KIP-951)."""
        nodes = endpoints(self._services, self._listener, self._leaders)
        if self._version < ENDPOINTS_SINCE or not nodes:
            self._out.append(0)
            return
        body = bytearray()
        write_uvarint(body, len(nodes) + 1)
        for node in nodes:
            body += _INT32.pack(node.node_id)
            _WRITE_STRING(body, node.host)
            body += _INT32.pack(node.port)
            _WRITE_NULLABLE(body, node.rack)
            body.append(0)
        write_tagged(self._out, [(0, _write_raw, bytes(body))])

    def _framed(self) -> list[Part]:
        """Without file slices it is one part."""
        if not self._parts:
            _SIZE.pack_into(self._out, 0, len(self._out) - 4)
            return [bytes(self._out)]
        self._cut()
        first = self._parts[0]
        assert isinstance(first, bytes)
        self._parts[0] = _SIZE.pack(self._file_bytes - 4) + first[4:]
        return self._parts


def _by_topic(reads: list[PartitionRead]) -> list[tuple[str | bytes, list[PartitionRead]]]:
    """Neighbours of one topic, together."""
    groups: list[tuple[str | bytes, list[PartitionRead]]] = []
    for read in reads:
        topic = read.item.topic
        if not groups or groups[-1][0] != topic:
            groups.append((topic, []))
        groups[-1][1].append(read)
    return groups


_WRITE_STRING = primitive_writer("string", compact=True, nullable=False)
_WRITE_NULLABLE = primitive_writer("string", compact=True, nullable=True)


def _write_raw(out: bytearray, value: bytes) -> None:
    out += value
