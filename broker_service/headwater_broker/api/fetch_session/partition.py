"""One partition of a fetch request or of a fetch session."""

from __future__ import annotations

from headwater_broker.replica.partition import Partition

TopicKey = str | bytes
"""A topic's name (Fetch below 13) or the 16 bytes of its id."""


class FetchItem:
    """One partition of a fetch: the requested position, and what the session last sent of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "located",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(
        self,
        topic: TopicKey,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.located: Partition | None = None
        """The hosted partition that the last read found; None before it, or when it failed."""

    def update(self, newer: FetchItem) -> None:
        """Take the position of a newer request; what was sent stays."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch
        self.log_start_offset = newer.log_start_offset
