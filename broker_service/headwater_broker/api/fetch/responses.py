"""Fetch replies written by struct: headers as bytes, records as slices of files or copies."""

from __future__ import annotations

import struct

from headwater.errors import ErrorCode
from headwater.wire.primitives import write_tagged, write_uvarint
from headwater.wire.primitives import writer as primitive_writer
from headwater_broker.api.context import Services
from headwater_broker.api.fetch.codec import FLEXIBLE, RACK_SINCE
from headwater_broker.api.fetch.read import PartitionRead
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.replies import FilePart, Part
from headwater_broker.api.request_limits import HOT_TAIL_BYTES, SENDFILE_MIN_BYTES
from headwater_broker.log.results import LogSlice
from headwater_broker.replica.partition import Partition

EPOCH_SINCE = 12
ENDPOINTS_SINCE = 16
TAG_DIVERGING = 0
TAG_LEADER = 1
LEADER_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_SIZE = struct.Struct(">i")
_HEAD_V4 = struct.Struct(">iiii")
_HEAD_V7 = struct.Struct(">iiihii")
_HEAD_V12 = struct.Struct(">iiBihi")
_PART_V4 = struct.Struct(">ihqq")
_PART_V5 = struct.Struct(">ihqqq")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NULL = b"\xff\xff\xff\xff"
_NULL_FLEXIBLE = b"\0"
_ABORTED = struct.Struct(">qq")
_ABORTED_FLEXIBLE = struct.Struct(">qqB")
_EPOCH_END = struct.Struct(">iqB")
_LEADER = struct.Struct(">iiB")


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
        elif self._version >= 7:
            self._out += _HEAD_V7.pack(0, correlation_id, 0, code, session_id, topics)
        else:
            self._out += _HEAD_V4.pack(0, correlation_id, 0, topics)

    def _topic(self, topic: str | bytes, partitions: int) -> None:
        out = self._out
        if isinstance(topic, bytes):
            out += topic
            write_uvarint(out, partitions + 1)
            return
        name = topic.encode()
        if self._version >= FLEXIBLE:
            write_uvarint(out, len(name) + 1)
            out += name
            write_uvarint(out, partitions + 1)
        else:
            out += _INT16.pack(len(name)) + name + _INT32.pack(partitions)

    def _partition(self, read: PartitionRead, flexible: bool) -> None:
        out, version = self._out, self._version
        payload = self._payload(read)  # first: what cannot be read is an error in the row
        index, high, stable = read.item.partition, read.high_watermark, read.last_stable_offset
        if version >= 5:
            out += _PART_V5.pack(index, read.code, high, stable, read.log_start_offset)
        else:
            out += _PART_V4.pack(index, read.code, high, stable)
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


def part_of_file(services: Services, partition: Partition, part: LogSlice) -> Part | None:
    """The records of a slice, copied when they are few; None when a disk thread must bring them in
    first. Raises OSError."""
    file, position, size = part.file, part.position, part.size_bytes
    fd = file.fileno()
    if fd >= 0:
        if not _is_hot_tail(partition, part) and services.warmer.is_cold(fd, position, size):
            return None
        if size >= SENDFILE_MIN_BYTES:
            return FilePart(fd, position, size)
    data = file.read_at(position, size)
    if len(data) != size:
        where = f"{partition.topic}-{partition.partition}"
        raise OSError(f"{where}: {len(data)} bytes of {size} read")
    return data


def _is_hot_tail(partition: Partition, part: LogSlice) -> bool:
    """The end of the open segment was written a moment ago: no probe needed."""
    file = part.file
    return file is partition.log.active.file and file.size_bytes - part.position <= HOT_TAIL_BYTES


_WRITE_STRING = primitive_writer("string", compact=True, nullable=False)
_WRITE_NULLABLE = primitive_writer("string", compact=True, nullable=True)


def _write_raw(out: bytearray, value: bytes) -> None:
    out += value
