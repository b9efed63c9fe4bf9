"""Audit lines as records of a topic (`headwater.audit.topic`), so that a Delta table has them.

A queue of limited length stands between the authorizer and the topic: no request waits for it. When
it is full the oldest lines go, and the next record says how many. The log file has them all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.metadata.cache import MetadataCache

LINES_MAX = 10_000
LINES_PER_BATCH = 500
RETRY_S = 1.0
TIMEOUT_MS = 30_000
PRODUCE_VERSION = 9
ACKS_ALL = -1

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
    ) -> None:
        self._topic = topic
        self._broker_id = broker_id
        self._view = view
        self._connections = connections
        self._clock = clock
        self._retry_s = retry_s
        self._lines_max = lines_max
        self._lines: deque[tuple[int, bytes]] = deque()
        self._dropped = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._last_fault = ""

    def publish(self, line: str) -> None:
        """Queue a line. Never waits."""
        if len(self._lines) >= self._lines_max:
            self._lines.popleft()
            self._dropped += 1
        self._lines.append((self._clock.now_ms(), line.encode(errors="replace")))
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

    async def _sent(self) -> bool:
        """Send the oldest lines; False when that failed, with the lines queued again."""
        rows = [self._lines.popleft() for _ in range(min(len(self._lines), LINES_PER_BATCH))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            text = f"{dropped} audit lines before this one were dropped: see the broker's log"
            rows.insert(0, (rows[0][0], text.encode()))
        fault = await self._fault_of(rows)
        if not fault:
            self._last_fault = ""
            return True
        self._lines.extendleft(reversed(rows))
        if fault != self._last_fault:
            logger.warning("audit lines wait for topic %s: %s", self._topic, fault)
        self._last_fault = fault
        return False

    async def _fault_of(self, rows: list[tuple[int, bytes]]) -> str:
        """Send one batch; why that failed, or nothing."""
        known = self._view.topics.get(self._topic)
        states = known.partitions.items() if known is not None else ()
        led = [(p, state.leader_id) for p, state in states if state.leader_id in self._view.brokers]
        if not led:
            return "it does not exist or has no leader; create it"
        # Partitions that this broker leads come first.
        partition, leader_id = min(led, key=lambda row: (row[1] != self._broker_id, row[0]))
        key = str(self._broker_id).encode()
        batch = build_batch((at, key, line, ()) for at, line in rows)
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
            return f"broker {leader_id} does not answer: {error}"
        code = reply.responses[0].partition_responses[0].error_code
        return f"error {code} from broker {leader_id}" if code else ""
