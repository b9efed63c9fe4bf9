"""How every command's tables look, and the console they are printed on."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 140
"""Where there is no terminal to ask: wide enough that scripts' eyes see whole words."""


def console() -> Console:
    """Stdout. Texts are shown as they are: a group may be named `app[1]`, or `a:key:b`."""
    found = Console(markup=False, emoji=False)
    return found if found.is_terminal else Console(width=PIPED_WIDTH, markup=False, emoji=False)


def table(title: str | None, headings: str) -> Table:
    """An empty table. Headings stand between commas; `>` before one aligns its column right.

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
