"""Tables on the terminal: their style, and how they fit into its width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 140
"""The width of output that does not go to a terminal."""

Cell = str | Text


def console() -> Console:
    """Standard output. Rich interprets nothing: a group may be named `app[1]` or `a:key:b`."""
    found = Console(markup=False, emoji=False)
    return found if found.is_terminal else Console(width=PIPED_WIDTH, markup=False, emoji=False)


def table(title: str | None, headings: str) -> Table:
    """An empty table. Commas separate the headings; `>` before one aligns its column right.

    `table("x", "name, state, >size")` has two columns aligned left and one aligned right.
    """
    made = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    for heading in headings.split(","):
        text = heading.strip()
        if text.startswith(">"):
            made.add_column(text[1:], justify="right", no_wrap=True)
        else:
            made.add_column(text, overflow="fold")
    return made


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `fitting_table`. `importance` 0 is shown always; of the others, the one with the
    highest number is left out first."""

    heading: str
    importance: int = 0


def fitting_table(
    title: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], width: int
) -> Table:
    """A table that leaves out its least important columns until no row needs two lines."""
    lines = list(rows)
    shown = list(range(len(columns)))
    while True:
        made = table(title, ", ".join(columns[i].heading for i in shown))
        for line in lines:
            made.add_row(*(line[i] for i in shown))
        least = max(shown, key=lambda i: columns[i].importance)
        wide = Console(width=1_000)
        natural = Measurement.get(wide, wide.options, made).maximum
        if natural <= width or columns[least].importance == 0:
            return made
        shown.remove(least)
