"""Audit lines as records of a topic (`headwater.audit.topic`), so that a Delta table has them.

A record is a JSON object with the parts of a line, and the line: with `headwater.value.format=json`
the typed table has a column for each. Every record has all fields, so a table has all columns from
its first row.

A queue of limited length stands between the authorizer and the topic: no request waits for it. When
it is full the oldest lines go, and the next record says how many. The log file has them all.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError
from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.security.audit_entry import AuditEntry, note

LINES_MAX = 10_000
QUEUE_BYTES_MAX = 16 * 1024 * 1024
"""A client chooses the names in a line, of up to 32 KB each."""
LINES_PER_BATCH = 500
BATCH_BYTES_MAX = 256 * 1024
"""Of one batch, well below `max.message.bytes`."""
RETRY_S = 1.0
TIMEOUT_MS = 30_000
PRODUCE_VERSION = 9
ACKS_ALL = -1

Row = tuple[int, bytes]
"""(when it was written, the record's value)."""

logger = logging.getLogger(__name__)


class AuditTopic:
    """Sends lines to the topic, in order, at least once, as this broker's own principal."""

    def __init__(
        self,
        topic: str,
        broker_id: int,
        view: MetadataCache,
        connections: BrokerConnections,
        clock: Clock,
        *,
        retry_s: float = RETRY_S,
        lines_max: int = LINES_MAX,
        bytes_max: int = QUEUE_BYTES_MAX,
    ) -> None:
        """`lines_max`, `bytes_max`: of the queue."""
        self._topic = topic
        self._broker_id = broker_id
        self._view = view
        self._connections = connections
        self._clock = clock
        self._retry_s = retry_s
        self._lines_max = lines_max
        self._bytes_max = bytes_max
        self._batch_bytes_max = BATCH_BYTES_MAX
        self._lines: deque[Row] = deque()
        self._bytes = 0
        """Of the values in `_lines`."""
        self._dropped = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_fault = ""

    def publish(self, entry: AuditEntry) -> None:
        """Queue an entry. Never waits."""
        now_ms = self._clock.now_ms()
        value = self._value(entry, now_ms)
        while self._lines and (
            len(self._lines) >= self._lines_max or self._bytes + len(value) > self._bytes_max
        ):
            self._taken()
            self._dropped += 1
        self._lines.append((now_ms, value))
        self._bytes += len(value)
        self._wake.set()

    def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="audit-topic")

    async def close(self) -> None:
        """Send no more: what is queued is in the log file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._connections.close()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._lines:
                if not await self._sent():
                    await asyncio.sleep(self._retry_s)

    def _taken(self) -> Row:
        """Take the oldest line out of the queue."""
        row = self._lines.popleft()
        self._bytes -= len(row[1])
        return row

    def _oldest(self) -> list[Row]:
        """Take the lines of one batch out of the queue."""
        rows, size = list[Row](), 0
        while self._lines and len(rows) < LINES_PER_BATCH:
            size += len(self._lines[0][1])
            if rows and size > self._batch_bytes_max:
                break
            rows.append(self._taken())
        return rows

    async def _sent(self) -> bool:
        """Send the oldest lines; False when that failed, with the lines queued again."""
        rows = self._oldest()
        dropped, self._dropped = self._dropped, 0
        if dropped:
            text = f"{dropped} audit lines before this one were dropped: see the broker's log"
            rows.insert(0, (rows[0][0], self._value(note(text), rows[0][0])))
        code, fault = await self._fault_of(rows)
        if not fault:
            self._last_fault = ""
            return True
        if code == ErrorCode.MESSAGE_TOO_LARGE:  # by the topic's max.message.bytes
            if len(rows) == 1:
                self._dropped += 1
                return True
            self._batch_bytes_max //= 2
        self._lines.extendleft(reversed(rows))
        self._bytes += sum(len(value) for _, value in rows)
        if fault != self._last_fault:
            logger.warning("audit lines wait for topic %s: %s", self._topic, fault)
        self._last_fault = fault
        return False

    def _value(self, entry: AuditEntry, at_ms: int) -> bytes:
        """The record of an entry. Its texts have no control characters and no lone surrogates."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        parts = {"time": at, "broker": self._broker_id, **asdict(entry)}
        return json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()

    async def _fault_of(self, rows: list[Row]) -> tuple[int, str]:
        """Send one batch; the error code and why it failed, or no text."""
        known = self._view.topics.get(self._topic)
        states = known.partitions.items() if known is not None else ()
        led = [(p, state.leader_id) for p, state in states if state.leader_id in self._view.brokers]
        if not led:
            return 0, "it does not exist or has no leader; create it"
        # Partitions that this broker leads come first.
        partition, leader_id = min(led, key=lambda row: (row[1] != self._broker_id, row[0]))
        key = str(self._broker_id).encode()
        batch = build_batch((at, key, value, ()) for at, value in rows)
        part = PartitionProduceData(index=partition, records=bytes(batch))
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=TIMEOUT_MS,
            topic_data=(TopicProduceData(name=self._topic, partition_data=(part,)),),
        )
        try:
            reply = await self._connections.call(
                leader_id, request, PRODUCE_VERSION, ProduceResponse
            )
        except (OSError, TimeoutError, HeadwaterError) as error:
            return 0, f"broker {leader_id} does not answer: {error}"
        code = reply.responses[0].partition_responses[0].error_code
        return code, f"error {code} from broker {leader_id}" if code else ""
