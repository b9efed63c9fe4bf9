"""A broker's transactions as a model behind a real socket: coordinator, leader and group in one.

It serves one topic `t` and answers as Kafka does for what a transactional producer sends. A test
plants an error, a lost request or a lost reply for the next request of an API.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from headwater.client.loop_thread import LoopThread
from headwater.errors import ErrorCode
from headwater.records.batch import iter_headers
from headwater.wire.apis import (
    k00_produce,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k22_init_producer_id,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k28_txn_offset_commit,
    k66_list_transactions,
)
from headwater.wire.framing import request_header_version, response_header_version
from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import Message, decode, decoder, encode

NODE = 7
PARTITIONS = 2
FIRST_PRODUCER_ID = 100
CALL_S = 30.0
_SIZE = struct.Struct(">i")


class Loss(Enum):
    """What happens to a request instead of an answer."""

    REQUEST = "the connection is closed before the request is served"
    REPLY = "the connection is closed after the request was served"


Fault = ErrorCode | Loss


class Written(NamedTuple):
    """A batch in a partition's log."""

    partition: int
    producer_epoch: int
    sequence: int
    count: int
    is_transactional: bool
    producer_id: int


class Marker(NamedTuple):
    """The end of a transaction in a partition's log."""

    partition: int
    producer_epoch: int
    commit: bool
    producer_id: int = FIRST_PRODUCER_ID


@dataclass
class Known:
    """What the coordinator knows of a transactional id."""

    producer_id: int
    epoch: int
    state: str = "Empty"
    partitions: set[int] = field(default_factory=set)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)


class TransactionBroker:
    """The model. Its attributes are read by the test, once the client's call has returned."""

    def __init__(
        self, version: int = 2, *, init_version: int = 5, max_timeout_ms: int = 900_000
    ) -> None:
        """`version`: of the feature transaction.version."""
        self.version = version
        self.max_timeout_ms = max_timeout_ms
        self.init_version = init_version
        self.faults: dict[type[Message], deque[Fault]] = defaultdict(deque)
        self.before: dict[type[Message], Callable[[], None]] = {}
        """Called on the broker's loop before the next request of a kind is served."""
        self.requests: list[tuple[str, int]] = []
        """(name, version) of what was served, but for metadata and versions."""
        self.log: list[Written | Marker] = []
        self.ids: dict[str, Known] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self._sequences: dict[tuple[int, int, int], int] = {}
        self._thread = LoopThread("transaction-broker")
        self._handlers: dict[int, tuple[type[Message], Callable[[Any, int], Message]]] = {
            0: (k00_produce.ProduceRequest, self._produce),
            3: (k03_metadata.MetadataRequest, self._metadata),
            10: (k10_find_coordinator.FindCoordinatorRequest, self._coordinator),
            22: (k22_init_producer_id.InitProducerIdRequest, self._init),
            24: (k24_add_partitions_to_txn.AddPartitionsToTxnRequest, self._add_partitions),
            25: (k25_add_offsets_to_txn.AddOffsetsToTxnRequest, self._add_offsets),
            26: (k26_end_txn.EndTxnRequest, self._end),
            28: (k28_txn_offset_commit.TxnOffsetCommitRequest, self._commit_offsets),
            66: (k66_list_transactions.ListTransactionsRequest, self._list),
        }
        is_v2 = version >= 2
        self._versions = {
            0: 12 if is_v2 else 11, 3: 12, 10: 4, 18: 4, 22: init_version, 24: 3, 25: 3,
            26: 5 if is_v2 else 4, 28: 5 if is_v2 else 4,
            66: 1,
        }  # fmt: skip

    def __enter__(self) -> TransactionBroker:
        self._thread.call(self._start(), CALL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.call(self._stop(), CALL_S)
        self._thread.stop()

    async def _start(self) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    @property
    def bootstrap(self) -> str:
        """`bootstrap_servers` of a client."""
        return f"127.0.0.1:{self.port}"

    def served(self, kind: type[Message]) -> list[int]:
        """The versions of the requests of this kind that were served."""
        name = kind.__name__.removesuffix("Request")
        return [version for served, version in self.requests if served == name]

    def visible(self) -> list[Written]:
        """The batches of committed transactions, in the log's order."""
        out = []
        for at, row in enumerate(self.log):
            if isinstance(row, Written):
                rest = (m for m in self.log[at:] if isinstance(m, Marker))
                mine = (m for m in rest if m.partition == row.partition)
                end = next((m for m in mine if m.producer_id == row.producer_id), None)
                if end is not None and end.commit:
                    out.append(row)
        return out

    # --- the socket -----------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                (size,) = _SIZE.unpack(await reader.readexactly(4))
                reply = self._answer(await reader.readexactly(size))
                if reply is None:
                    return
                writer.write(_SIZE.pack(len(reply)) + reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, frame: bytes) -> bytes | None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if key == 18:
            return self._reply(self._api_versions(), version, correlation_id)
        kind, handle = self._handlers[key]
        _, at = decoder(RequestHeader, request_header_version(kind, version))(frame)
        request = decode(kind, version, memoryview(frame)[at:])
        if (hook := self.before.pop(kind, None)) is not None:
            hook()
        fault = self.faults[kind].popleft() if self.faults[kind] else None
        if fault is Loss.REQUEST:
            return None
        self._fault = fault if isinstance(fault, ErrorCode) else ErrorCode.NONE
        if key not in (3, 10):
            self.requests.append((kind.__name__.removesuffix("Request"), version))
        reply = handle(request, version)
        return None if fault is Loss.REPLY else self._reply(reply, version, correlation_id)

    @staticmethod
    def _reply(reply: Message, version: int, correlation_id: int) -> bytes:
        header = ResponseHeader(correlation_id=correlation_id)
        head = encode(header, response_header_version(type(reply), version))
        return head + encode(reply, version)

    def _api_versions(self) -> Message:
        rows = tuple(
            k18_api_versions.ApiVersion(api_key=key, min_version=0, max_version=high)
            for key, high in self._versions.items()
        )
        level = k18_api_versions.FinalizedFeatureKey(
            name="transaction.version", max_version_level=self.version,
            min_version_level=self.version,
        )  # fmt: skip
        return k18_api_versions.ApiVersionsResponse(
            error_code=0, api_keys=rows, finalized_features_epoch=1, finalized_features=(level,)
        )

    def _metadata(self, request: k03_metadata.MetadataRequest, version: int) -> Message:
        rows = tuple(
            k03_metadata.MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=NODE, leader_epoch=1,
                replica_nodes=(NODE,), isr_nodes=(NODE,),
            )
            for index in range(PARTITIONS)
        )  # fmt: skip
        topic = k03_metadata.MetadataResponseTopic(error_code=0, name="t", partitions=rows)
        broker = k03_metadata.MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)
        return k03_metadata.MetadataResponse(brokers=(broker,), controller_id=NODE, topics=(topic,))

    def _coordinator(self, request: Any, version: int) -> Message:
        row = k10_find_coordinator.Coordinator(
            key=request.coordinator_keys[0], node_id=NODE, host="127.0.0.1", port=self.port,
            error_code=self._fault,
        )  # fmt: skip
        return k10_find_coordinator.FindCoordinatorResponse(coordinators=(row,))

    # --- the coordinator ------------------------------------------------------------------

    def _init(self, request: k22_init_producer_id.InitProducerIdRequest, version: int) -> Message:
        error, ongoing = self._fault, (-1, -1)
        transactional_id = request.transactional_id or ""
        known = self.ids.get(transactional_id)
        if request.transaction_timeout_ms > self.max_timeout_ms and not request.enable2_pc:
            error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        elif transactional_id.startswith("__hw."):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not error and known is None:
            known = self.ids[transactional_id] = Known(FIRST_PRODUCER_ID + len(self.ids), 0)
        elif not error and known is not None:
            asked = (request.producer_id, request.producer_epoch)
            if request.producer_id >= 0 and asked != (known.producer_id, known.epoch):
                error = ErrorCode.PRODUCER_FENCED
            elif known.state == "Ongoing" and request.keep_prepared_txn:
                ongoing = (known.producer_id, known.epoch)
                known.epoch += 1
            else:
                self._decide(known, commit=False)
                known.state = "Empty"
                known.epoch += 1
        row = known or Known(-1, -1)
        return k22_init_producer_id.InitProducerIdResponse(
            error_code=error, producer_id=row.producer_id, producer_epoch=row.epoch,
            ongoing_txn_producer_id=ongoing[0], ongoing_txn_producer_epoch=ongoing[1],
        )  # fmt: skip

    def _decide(self, known: Known, *, commit: bool) -> None:
        if known.state == "Ongoing":
            self.log += [
                Marker(p, known.epoch, commit, known.producer_id) for p in sorted(known.partitions)
            ]
            if commit:
                self.committed.update(known.offsets)
            known.state = "CompleteCommit" if commit else "CompleteAbort"
        known.partitions.clear()
        known.offsets.clear()
        known.groups.clear()

    def _checked(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        known = self.ids.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def _add_partitions(self, request: Any, version: int) -> Message:
        transactional_id = request.v3_and_below_transactional_id
        error = self._fault or self._checked(
            transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        topics = request.v3_and_below_topics
        if not error:
            known = self.ids[transactional_id]
            known.state = "Ongoing"
            known.partitions.update(p for topic in topics for p in topic.partitions)
        result = k24_add_partitions_to_txn.AddPartitionsToTxnPartitionResult
        return k24_add_partitions_to_txn.AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                k24_add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        result(partition_index=p, partition_error_code=error)
                        for p in topic.partitions
                    ),
                )
                for topic in topics
            )
        )

    def _add_offsets(self, request: Any, version: int) -> Message:
        error = self._fault or self._checked(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        if not error:
            known = self.ids[request.transactional_id]
            known.state = "Ongoing"
            known.groups.add(request.group_id)
        return k25_add_offsets_to_txn.AddOffsetsToTxnResponse(error_code=error)

    def _end(self, request: k26_end_txn.EndTxnRequest, version: int) -> Message:
        known = self.ids[request.transactional_id]
        error = self._fault or self._ended(known, request, is_v2=version >= 5)
        return k26_end_txn.EndTxnResponse(
            error_code=error, producer_id=known.producer_id, producer_epoch=known.epoch
        )

    def _ended(self, known: Known, request: k26_end_txn.EndTxnRequest, *, is_v2: bool) -> ErrorCode:
        wanted = "CompleteCommit" if request.committed else "CompleteAbort"
        is_retry = known.state == wanted and known.epoch == request.producer_epoch + is_v2
        if known.producer_id == request.producer_id and is_retry:
            return ErrorCode.NONE
        error = self._checked(request.transactional_id, request.producer_id, request.producer_epoch)
        if error:
            return error
        if known.state != "Ongoing" and not (is_v2 and not request.committed):
            return ErrorCode.INVALID_TXN_STATE
        self._decide(known, commit=request.committed)
        known.state = wanted
        known.epoch += is_v2
        return ErrorCode.NONE

    def _list(self, request: Any, version: int) -> Message:
        rows = tuple(
            k66_list_transactions.TransactionState(
                transactional_id=name, producer_id=known.producer_id, transaction_state=known.state
            )
            for name, known in self.ids.items()
            if known.state in request.state_filters
        )
        return k66_list_transactions.ListTransactionsResponse(
            error_code=self._fault, transaction_states=() if self._fault else rows
        )

    def time_out(self, transactional_id: str) -> None:
        """The transaction was open for too long: it is aborted, and its producer fenced."""
        known = self.ids[transactional_id]
        self._decide(known, commit=False)
        known.epoch += 1

    # --- the group and the leaders --------------------------------------------------------

    def _commit_offsets(self, request: Any, version: int) -> Message:
        error = self._fault or self._checked(
            request.transactional_id, request.producer_id, request.producer_epoch
        )
        if not error:
            known = self.ids[request.transactional_id]
            if version < 5 and request.group_id not in known.groups:
                error = ErrorCode.INVALID_TXN_STATE
            else:
                known.state = "Ongoing"
                for topic in request.topics:
                    for row in topic.partitions:
                        known.offsets[topic.name, row.partition_index] = row.committed_offset
        self.member = (request.generation_id, request.member_id)
        row_type = k28_txn_offset_commit.TxnOffsetCommitResponsePartition
        return k28_txn_offset_commit.TxnOffsetCommitResponse(
            topics=tuple(
                k28_txn_offset_commit.TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        row_type(partition_index=row.partition_index, error_code=error)
                        for row in topic.partitions
                    ),
                )
                for topic in request.topics
            )
        )

    def _produce(self, request: k00_produce.ProduceRequest, version: int) -> Message:
        rows = []
        for topic in request.topic_data:
            for part in topic.partition_data:
                error = self._fault or self._append(request, part, version)
                rows.append(
                    k00_produce.PartitionProduceResponse(
                        index=part.index, error_code=error, base_offset=0
                    )
                )
        answer = k00_produce.TopicProduceResponse(name="t", partition_responses=tuple(rows))
        return k00_produce.ProduceResponse(responses=(answer,))

    def _append(
        self,
        request: k00_produce.ProduceRequest,
        part: k00_produce.PartitionProduceData,
        version: int,
    ) -> ErrorCode:
        ((_, header),) = iter_headers(memoryview(part.records or b""))
        transactional_id = request.transactional_id or ""
        if self._checked(transactional_id, header.producer_id, header.producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = self.ids[transactional_id]
        if version < 12 and part.index not in known.partitions:
            return ErrorCode.INVALID_TXN_STATE
        place = (part.index, header.producer_id, header.producer_epoch)
        expected = self._sequences.get(place, 0)
        if header.base_sequence < expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if header.base_sequence > expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        known.state = "Ongoing"
        known.partitions.add(part.index)
        self._sequences[place] = expected + header.record_count
        self.log.append(
            Written(
                part.index, header.producer_epoch, header.base_sequence, header.record_count,
                header.is_transactional, header.producer_id,
            )
        )  # fmt: skip
        return ErrorCode.NONE
