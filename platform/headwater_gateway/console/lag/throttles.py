"""The readers that a quota throttles, as far as others can see it.

Brokers tell the throttle time to the client alone. So this compares a client's quota of bytes
(`consumer_byte_rate`) with the bytes that its positions have passed, by the average size of a
record in each log. A reader at 0.9 of its quota with records left to read is throttled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.client.values import ClientQuotas, GroupDescription, TopicPartition
from headwater.errors import KafkaError
from headwater_gateway.console.lag.window import GroupWindow, PartitionLag

QUOTA = "consumer_byte_rate"
CLIENT = "client-id"
REFRESH_S = 30.0
AT_QUOTA = 0.9


class Throttles:
    """Quotas and sizes, asked for at times."""

    def __init__(self) -> None:
        self._asked_s: float | None = None
        self._quotas: list[ClientQuotas] = []
        self._sizes: dict[TopicPartition, int] = {}

    async def find(
        self,
        admin: Any,
        now_s: float,
        groups: Mapping[str, GroupDescription],
        windows: Mapping[str, GroupWindow],
    ) -> dict[str, frozenset[TopicPartition]]:
        """Group -> its throttled partitions; none where the caller may not see quotas."""
        if self._asked_s is None or now_s - self._asked_s >= REFRESH_S:
            self._asked_s = now_s
            await self._refresh(admin)
        if not self._quotas:
            return {}
        return {
            name: found
            for name, group in groups.items()
            if name in windows and (found := self._throttled(group, windows[name]))
        }

    async def _refresh(self, admin: Any) -> None:
        try:
            quotas = await admin.describe_client_quotas()
            self._quotas = [q for q in quotas if QUOTA in q.quotas and set(q.entity) == {CLIENT}]
            if self._quotas:
                self._sizes = sizes_of(await admin.describe_log_dirs())
        except KafkaError:
            self._quotas = []

    def _quota(self, client_id: str) -> float | None:
        by_name = {q.entity[CLIENT]: q.quotas[QUOTA] for q in self._quotas}
        return by_name.get(client_id, by_name.get(None))

    def _throttled(self, group: GroupDescription, window: GroupWindow) -> frozenset[TopicPartition]:
        lags = {row.partition: row for row in window.partitions()}
        found: set[TopicPartition] = set()
        for member in group.members:
            quota = self._quota(member.client_id)
            rows = [lags[tp] for tp in member.assignment if tp in lags]
            if quota is None:
                continue
            read = sum(
                row.speed.read * self._record_bytes(row) for row in rows if row.speed is not None
            )
            if read >= AT_QUOTA * quota:
                found.update(row.partition for row in rows if row.now.lag)
        return frozenset(found)

    def _record_bytes(self, row: PartitionLag) -> float:
        records = row.now.high_watermark - row.now.log_start
        return self._sizes.get(row.partition, 0) / max(1, records)


def sizes_of(log_dirs: Mapping[int, Any]) -> dict[TopicPartition, int]:
    """The bytes of each partition: of its largest replica."""
    found: dict[TopicPartition, int] = {}
    for dirs in log_dirs.values():
        for log_dir in dirs:
            for tp, replica in log_dir.replicas.items():
                if not replica.is_future:
                    found[tp] = max(found.get(tp, 0), replica.size)
    return found
