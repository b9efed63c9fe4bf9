"""A topic's declarations of its records by configs, and the offsets since which each holds. Pure.

A typed table keeps the list of its declarations, each with the offsets that it starts from, as a
property: decoding an old record again, for quarantine or replay, then gives the same row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from headwater_tier.typed.decoding import DeclaredFormat

PROPERTY = "headwater.typed.declarations"
"""JSON: a list of {start, value, key}, oldest first."""
DEFAULT_SCHEMAS = {"json": "infer", "confluent": "registry"}
LATEST_INTERVAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Declaration:
    """The formats of values and keys. Keys without a format stay binary."""

    value: DeclaredFormat
    key: DeclaredFormat | None = None


@dataclass(frozen=True, slots=True)
class Since:
    """A declaration and the first offset per partition that it is for; 0 where none is named."""

    declaration: Declaration
    starts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TopicTables:
    """All that a topic's configs say of its derived tables."""

    declaration: Declaration
    cluster: tuple[str, ...] = ()
    latest: bool = False
    latest_interval_ms: int = LATEST_INTERVAL_MS


def declared_tables(topic: str, configs: Mapping[str, str]) -> TopicTables | None:
    """The declaration in a topic's configs; None for a topic without a typed table."""
    value_format = configs.get("headwater.value.format", "")
    if not value_format:
        return None
    value = DeclaredFormat(
        value_format,
        _schema(value_format, configs.get("headwater.value.schema", ""), f"{topic}-value"),
        configs.get("headwater.value.message", ""),
        configs.get("headwater.typed.variant", "false") == "true",
        configs.get("headwater.value.envelope", ""),
    )
    key_format = configs.get("headwater.key.format", "")
    key = None
    if key_format:
        schema = _schema(key_format, configs.get("headwater.key.schema", ""), f"{topic}-key")
        # Connect's converter wraps keys as it does values, in schema and payload.
        key = DeclaredFormat(key_format, schema, envelope=value.envelope)
    cluster = configs.get("headwater.typed.cluster", "")
    interval = configs.get("headwater.latest.interval.ms", "") or LATEST_INTERVAL_MS
    return TopicTables(
        Declaration(value, key),
        tuple(name.strip() for name in cluster.split(",") if name.strip()),
        configs.get("headwater.latest.enable", "false") == "true",
        int(interval),
    )


def to_property(declarations: Sequence[Since]) -> str:
    """The JSON of the table property."""
    rows = [
        {
            "start": {str(p): offset for p, offset in since.starts.items()},
            "value": asdict(since.declaration.value),
            "key": asdict(since.declaration.key) if since.declaration.key else None,
        }
        for since in declarations
    ]
    return json.dumps(rows, separators=(",", ":"))


def from_property(text: str) -> tuple[Since, ...]:
    """The declarations in a table property, oldest first."""
    return tuple(
        Since(
            Declaration(
                DeclaredFormat(**row["value"]),
                DeclaredFormat(**row["key"]) if row["key"] else None,
            ),
            {int(p): offset for p, offset in row["start"].items()},
        )
        for row in json.loads(text)
    )


def cut_by_declaration(
    declarations: Sequence[Since], partition: int, start: int, end: int
) -> list[tuple[Declaration, int, int]]:
    """(declaration, start, end) of the parts of an offset range, in order."""
    parts = []
    for at, since in enumerate(declarations):
        first = max(start, since.starts.get(partition, 0) if at else 0)
        later = [other.starts.get(partition, 0) for other in declarations[at + 1 :]]
        last = min([end, *later])
        if first < last:
            parts.append((since.declaration, first, last))
    return parts


def _schema(format_: str, schema: str, subject: str) -> str:
    schema = schema or DEFAULT_SCHEMAS.get(format_, "")
    return f"registry:{subject}" if schema == "registry" else schema
