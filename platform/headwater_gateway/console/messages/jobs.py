"""Jobs of a message worker, and their answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headwater.errors import HeadwaterError
from headwater_gateway.console.messages.decoding import AUTO
from headwater_tier.typed.decoding import DeclaredFormat


class Render(Enum):
    """The form of the records that match."""

    ROWS = "rows"
    NDJSON = "ndjson"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Job:
    """How one scan decodes, filters and renders."""

    filter: str = ""
    key: str = AUTO
    value: str = AUTO
    declared_key: DeclaredFormat | None = None
    declared_value: DeclaredFormat | None = None
    render: Render = Render.ROWS


@dataclass(slots=True)
class Counts:
    """What a filter met."""

    scanned: int = 0
    matched: int = 0
    missing: int = 0
    type_errors: int = 0
    too_long: int = 0
    undecodable: int = 0
    """Records whose value is shown as hex, or as text though its format is declared."""

    def add(self, other: Counts) -> None:
        """Sum up."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Rendered:
    """One record that matched. `text`: JSON of a row, or a line of an export."""

    timestamp: int
    partition: int
    offset: int
    text: str


@dataclass(slots=True)
class Judged:
    """A worker's answer for one chunk."""

    counts: Counts = field(default_factory=Counts)
    rows: list[Rendered] = field(default_factory=list)


class WorkerEndedError(HeadwaterError):
    """A worker's process ended within a chunk. `index`: of the record that it was at."""

    def __init__(self, index: int, cause: str) -> None:
        super().__init__(cause)
        self.index = index
        self.cause = cause
