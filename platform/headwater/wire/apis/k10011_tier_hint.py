"""TierHint (API key 10011): Headwater's own, from tier jobs: a topic's table has new records."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class TierHintRequest(Message):
    """API key 10011, version 0, flexible. It needs Read on the topic."""

    api_key: ClassVar[int] = 10011
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    topic_id: UUID = wire("uuid")


@wire_schema
class TierHintResponse(Message):
    """API key 10011, version 0, flexible."""

    api_key: ClassVar[int] = 10011
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    """UNKNOWN_TOPIC_ID also for a topic that the client may not read."""
