"""The names in a table's folder and transaction log, each with an example. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from uuid import UUID

from headwater.ids import id_text
from headwater.security.store_options import StoreOptions

TXN_PREFIX = "hw1"
"""Version of the naming of application transactions."""


def table_uri(base: str, topic: str, topic_id: UUID) -> str:
    """`s3://lake/headwater/flights-mb7ktUyQRLqEOsuIwKHa3w`: a topic id never shares a table."""
    return f"{base.rstrip('/')}/{topic}-{id_text(topic_id)}"


def end_txn(topic_id: UUID, partition: int) -> str:
    """`hw1/mb7ktUyQRLqEOsuIwKHa3w/3/end`: the next offset to tier, exclusive."""
    return f"{TXN_PREFIX}/{id_text(topic_id)}/{partition}/end"


def start_txn(topic_id: UUID, partition: int) -> str:
    """`hw1/mb7ktUyQRLqEOsuIwKHa3w/3/start`: the log start."""
    return f"{TXN_PREFIX}/{id_text(topic_id)}/{partition}/start"


def rows_txn(topic_id: UUID) -> str:
    """`hw1/mb7ktUyQRLqEOsuIwKHa3w/rows`: the live row count."""
    return f"{TXN_PREFIX}/{id_text(topic_id)}/rows"


def data_file(level: int, attempt: UUID) -> str:
    """`l0-6f1c...d2.parquet`: new for every attempt, so that no retry overwrites another's file."""
    return f"l{level}-{attempt}.parquet"


_DATA_FILE = re.compile(r"l\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")


def is_own_file(path: str) -> bool:
    """True for Headwater's files, which are sorted and have row groups of one partition each."""
    return _DATA_FILE.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class TableLocation:
    """A topic's log table and the options of its storage. Picklable; travels to tasks."""

    uri: str
    topic: str
    topic_id: UUID
    storage_options: StoreOptions = field(default=(), repr=False)
