"""The state of the message browser as its address holds it: what to read, from where, how. Pure.

`?p=0,2&from=ts:2026-11-25T10:00:00Z&filter=value.delay > 30&key=text&value=json&n=50`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from urllib.parse import urlencode

from headwater.errors import UsageError
from headwater.wire.primitives import INT64_MAX
from headwater_gateway.console.messages.decoding import AUTO, CHOICES
from headwater_gateway.console.messages.record_filter import EXPRESSION_CHARS_MAX

ROWS_DEFAULT = 50
ROWS_MAX = 1000
PARTITIONS_MAX = 10_000


class Source(Enum):
    """What is read."""

    LOG = "log"
    TABLE = "table"
    """The topic's Delta table: what is tiered, without a broker reading it again."""


class From(Enum):
    """Where reading begins."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "ts"
    VERSION = "version"
    LIVE = "live"


_WITH_AT = frozenset({From.OFFSET.value, From.TIME.value, From.VERSION.value})


@dataclass(frozen=True, slots=True)
class Address:
    """What the browser shows. `at`: offset, timestamp in ms or table version, by `start`.

    `cursor`: where a further page begins, by partition: exclusive ends when the newest come first,
    else first offsets.
    """

    partitions: tuple[int, ...] = ()
    start: From = From.NEWEST
    at: int = 0
    filter: str = ""
    key: str = AUTO
    value: str = AUTO
    rows: int = ROWS_DEFAULT
    cursor: tuple[tuple[int, int], ...] = ()
    is_committed: bool = True
    source: Source = Source.LOG

    def query(self, **changes: object) -> str:
        """The query string, of this state with changes; defaults stay away."""
        new = replace(self, **changes)  # type: ignore[arg-type]
        parts: dict[str, str] = {}
        if new.partitions:
            parts["p"] = ",".join(map(str, new.partitions))
        if new.start is not From.NEWEST:
            has_at = new.start.value in _WITH_AT
            parts["from"] = f"{new.start.value}:{new.at}" if has_at else new.start.value
        if new.filter:
            parts["filter"] = new.filter
        for name in ("key", "value"):
            if getattr(new, name) != AUTO:
                parts[name] = getattr(new, name)
        if new.rows != ROWS_DEFAULT:
            parts["n"] = str(new.rows)
        if new.cursor:
            parts["cursor"] = ",".join(f"{p}:{offset}" for p, offset in new.cursor)
        if new.source is not Source.LOG:
            parts["src"] = new.source.value
        if not new.is_committed:
            parts["isolation"] = "read_uncommitted"
        return urlencode(parts)


def parse_address(query: Mapping[str, str], rows_max: int = ROWS_MAX) -> Address:
    """The state in a query string. Raises UsageError that names the parameter and the remedy."""
    start, at = _start(
        query.get("from", "") or From.NEWEST.value, query.get("at", "") or query.get("offset", "")
    )
    expression = query.get("filter", "").strip()
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise UsageError(f"filter: {EXPRESSION_CHARS_MAX} characters are the most")
    isolation = query.get("isolation", "") or "read_committed"
    if isolation not in ("read_committed", "read_uncommitted"):
        raise UsageError(f"isolation={isolation[:40]!r}: use read_committed or read_uncommitted")
    return Address(
        partitions=_partitions(query.get("p", "")),
        start=start,
        at=at,
        filter=expression,
        key=_choice("key", query.get("key", "")),
        value=_choice("value", query.get("value", "")),
        rows=_number("n", query.get("n", "") or str(ROWS_DEFAULT), rows_max),
        cursor=_cursor(query.get("cursor", "")),
        is_committed=isolation == "read_committed",
        source=_source(query.get("src", "")),
    )


def _source(text: str) -> Source:
    kinds = {kind.value: kind for kind in Source}
    if text and text not in kinds:
        raise UsageError(f"src={text[:40]!r}: use log or table")
    return kinds.get(text, Source.LOG)


def _start(text: str, at: str) -> tuple[From, int]:
    """`from=offset:5`; forms send `from=offset&at=5`, links of other views `&offset=5`."""
    name, _, rest = text.partition(":")
    rest = rest or (at.strip() if name in _WITH_AT else "")
    kinds = {kind.value: kind for kind in From}
    if name not in kinds:
        raise UsageError(
            f"from={text[:40]!r}: use newest, oldest, live, offset:N, ts:TIME or version:N"
        )
    kind = kinds[name]
    if kind is From.TIME:
        return kind, _time_ms(rest)
    if kind in (From.OFFSET, From.VERSION):
        return kind, _number(f"from={name}:", rest, INT64_MAX, least=0)
    if rest:
        raise UsageError(f"from={text[:40]!r}: {name} takes no number")
    return kind, 0


def _time_ms(text: str) -> int:
    """Milliseconds, or ISO 8601; without a zone it is UTC."""
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(zoned.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"from=ts:{text[:40]!r}: write it as 2026-11-21T10:00:00Z or in milliseconds"
        ) from None


def _partitions(text: str) -> tuple[int, ...]:
    found = {_number("p", one, 2**31 - 1, least=0) for one in text.split(",") if one.strip()}
    if len(found) > PARTITIONS_MAX:
        raise UsageError(f"p names {len(found)} partitions: {PARTITIONS_MAX} are the most")
    return tuple(sorted(found))


def _cursor(text: str) -> tuple[tuple[int, int], ...]:
    ends = {}
    for one in filter(None, text.split(",")):
        partition, _, offset = one.partition(":")
        number = _number("cursor", partition, 2**31 - 1, least=0)
        ends[number] = _number("cursor", offset, INT64_MAX, least=0)
    return tuple(sorted(ends.items()))


def _choice(name: str, text: str) -> str:
    if text and text not in CHOICES:
        raise UsageError(f"{name}={text[:40]!r}: use {', '.join(CHOICES)}")
    return text or AUTO


def _number(name: str, text: str, most: int, least: int = 1) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or not least <= int(text[:20]) <= most:
        raise UsageError(f"{name}={text[:40]!r}: use a number from {least} to {most}")
    return int(text)
