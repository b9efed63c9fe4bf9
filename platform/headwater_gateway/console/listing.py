"""Lists that are filtered, sorted and cut by what the address says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headwater_gateway.console.addresses import address

R = TypeVar("R")
ROWS_MAX = 1_000
ROWS_TICKING_MAX = 300
ROWS_AT_FIRST = 100
"""Of a page that is being opened: it paints at once, then asks for the others itself."""
Key = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column that sorts."""

    name: str
    title: str
    key: Key
    is_number: bool = False
    is_wide_only: bool = False
    """Left out on small screens."""


@dataclass(frozen=True, slots=True)
class Head:
    """A column's head: its link sorts by it, or turns the order."""

    column: Column
    link: str
    order: str
    """`ascending`, `descending`, or empty."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """Rows as a page shows them."""

    rows: Sequence[R]
    found: int
    """Rows that match the filter, shown or not."""
    total: int
    heads: Sequence[Head]
    query: Mapping[str, str]
    address: str
    """Of the page with this filter and order."""
    is_whole: bool
    """False: the page asks for the other rows itself."""

    @property
    def text(self) -> str:
        """The filter."""
        return self.query.get("q", "")

    @property
    def sort(self) -> str:
        """The column and order, as the address has them."""
        return self.query.get("sort", "")

    @property
    def tick(self) -> str:
        """The event at which the page asks for the list anew: long ones more rarely."""
        return "tick" if len(self.rows) <= ROWS_TICKING_MAX else "slow-tick"

    @property
    def left_out(self) -> int:
        """Rows that match and are not shown."""
        return self.found - len(self.rows)


def listing(
    parts: Sequence[object],
    query: Mapping[str, str],
    rows: Iterable[R],
    columns: Sequence[Column],
    words: Callable[[R], str],
    *,
    is_whole: bool = True,
) -> Listing[R]:
    """`parts`: of the page's address. `words`: what the filter looks into, each of its words.
    `is_whole` False: the first rows only."""
    every = list(rows)
    wanted = query.get("q", "").casefold().split()
    found = [r for r in every if all(w in words(r).casefold() for w in wanted)]
    name, is_down = _order(query.get("sort", ""), columns)
    column = next(c for c in columns if c.name == name)
    found.sort(key=lambda row: _comparable(column.key(row)), reverse=is_down)
    heads = [_head(parts, query, c, name, is_down=is_down) for c in columns]
    limit = ROWS_MAX if is_whole else ROWS_AT_FIRST
    here = address(*parts, **query)
    return Listing(found[:limit], len(found), len(every), heads, query, here, is_whole)


def _comparable(value: Any) -> tuple[bool, Any]:
    """None sorts below everything."""
    return (value is not None, value if value is not None else 0)


def _order(text: str, columns: Sequence[Column]) -> tuple[str, bool]:
    """`-lag`: by lag, the largest first. An unknown name: the first column."""
    name = text.removeprefix("-")
    known = {column.name for column in columns}
    return (name, text.startswith("-")) if name in known else (columns[0].name, False)


def _head(
    parts: Sequence[object], query: Mapping[str, str], column: Column, by: str, *, is_down: bool
) -> Head:
    is_this = column.name == by
    # Numbers begin with the largest; a second click turns the order.
    turned = not is_down if is_this else column.is_number
    sort = f"-{column.name}" if turned else column.name
    link = address(*parts, **{**query, "sort": sort})
    order = ("descending" if is_down else "ascending") if is_this else ""
    return Head(column, link, order)
