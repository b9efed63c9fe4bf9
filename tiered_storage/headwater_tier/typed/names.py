"""Where the derived tables of a topic are, and the names in their transaction logs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from headwater.ids import id_text
from headwater_tier.table_names import TableLocation

TXN_PREFIX = "hwt1"
"""Version of the naming of application transactions in derived tables."""


class Kind(Enum):
    """The tables that Headwater derives from a topic's log table."""

    TYPED = "typed"
    QUARANTINE = "quarantine"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Derived:
    """A derived table: its place, kind and generation. A generation has a fence of its own."""

    place: TableLocation
    kind: Kind
    generation: int = 1

    def end_txn(self, partition: int) -> str:
        """`hwt1/mb7ktUyQRLqEOsuIwKHa3w/1/3/end`: the next offset to read, exclusive."""
        return end_txn(self.place.topic_id, self.generation, partition)

    @property
    def version_txn(self) -> str:
        """`hwt1/mb7ktUyQRLqEOsuIwKHa3w/version`: the version of Headwater's newest commit."""
        return f"{TXN_PREFIX}/{id_text(self.place.topic_id)}/version"

    def clean_txn(self, partition: int) -> str:
        """`hwt1/mb7ktUyQRLqEOsuIwKHa3w/1/3/clean`: below it, quarantine lacks no record."""
        return f"{TXN_PREFIX}/{id_text(self.place.topic_id)}/{self.generation}/{partition}/clean"


def end_txn(topic_id: UUID, generation: int, partition: int) -> str:
    """`hwt1/mb7ktUyQRLqEOsuIwKHa3w/1/3/end`: the next offset to read, exclusive."""
    return f"{TXN_PREFIX}/{id_text(topic_id)}/{generation}/{partition}/end"


def derived(log: TableLocation, kind: Kind, generation: int = 1) -> Derived:
    """The derived table beside a log table.

    `s3://lake/flights_typed-mb7ktUyQRLqEOsuIwKHa3w`, from generation 2 on with `-2` after it. The
    quarantine table holds all generations.
    """
    base = log.uri.rstrip("/").rpartition("/")[0]
    name = f"{log.topic}_{kind.value}-{id_text(log.topic_id)}"
    if generation > 1 and kind is not Kind.QUARANTINE:
        name += f"-{generation}"
    uri = f"{base}/{name}" if base else name
    place = TableLocation(uri, log.topic, log.topic_id, log.storage_options)
    return Derived(place, kind, generation)
