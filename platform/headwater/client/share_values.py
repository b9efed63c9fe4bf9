"""The values of share groups (KIP-932): acknowledgement types, records with a delivery count,
outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from headwater.client.values import ConsumerRecord, Outage, TopicPartition
from headwater.errors import KafkaError


class AcknowledgeType(IntEnum):
    """What becomes of a record that a share consumer holds; the values are Kafka's."""

    ACCEPT = 1
    """It is processed."""
    RELEASE = 2
    """It is not processed: deliver it again, to any member."""
    REJECT = 3
    """It cannot be processed: deliver it to nobody again."""
    RENEW = 4
    """It takes longer: hold it for another lock timeout. It is acknowledged again later."""


class ShareRecord(ConsumerRecord):
    """One record as a share consumer receives it.

    `delivery_count`: how often the group has delivered it, this time included; from 1.
    """

    delivery_count: int = 1

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, delivery_count={self.delivery_count})"

    def _replace(self, **changes: Any) -> ShareRecord:
        """A copy with other fields, as of any named tuple; it keeps the delivery count."""
        count = changes.pop("delivery_count", self.delivery_count)
        fields: Mapping[str, Any] = {**self._asdict(), **changes}
        record = ShareRecord(**fields)
        record.delivery_count = count
        return record


class AcknowledgementResult(NamedTuple):
    """What came of acknowledgements of one partition, in one request.

    With an `error` the broker did not take them, or it is not known: the records may be delivered
    again.
    """

    partition: TopicPartition
    offsets: list[int]
    error: KafkaError | None


class ShareConsumerStatistics(NamedTuple):
    """What a share consumer has done since it was created, and what it waits for now."""

    records_consumed: int
    """Records that were returned."""
    records_held: int
    """Returned and not acknowledged yet."""
    records_lapsed: int
    """Acquired but never returned: their lock timeout passed before."""
    acknowledgements: int
    """That brokers have taken."""
    acknowledgements_failed: int
    fetches: int
    assigned: list[TopicPartition]
    outages: list[Outage]
