"""The decision on a write request: the records to write, and the reply to give once they are read
back. Pure: commands are functions of a state and a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater_gateway.registry.records import Record


@dataclass(frozen=True, slots=True)
class Decision:
    """`records` are written in one transaction; without any, nothing is written."""

    reply: Any
    records: tuple[Record, ...] = ()
