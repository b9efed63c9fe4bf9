"""What the demo shows while it runs: one live line of the year, bars for the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flights.ledger import Ledger
from flights.year import Year

REFRESH_S = 0.25


class Screen:
    """The console with the phases' headings and bars."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def heading(self, text: str) -> None:
        """A phase begins."""
        self.console.print()
        self.console.rule(f"[bold]{text}", align="left")

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """A spinner beside a task of unknown length; the yielded function changes its text."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(text)

            def say(words: str) -> None:
                progress.update(task, description=words)

            yield say
            took_s = progress.tasks[task].elapsed or 0.0
        self.console.print(f"  [green]done[/] {text} ({took_s:.0f} s)", highlight=False)

    def follow_year(
        self, year: Year, ledger: Ledger, running: threading.Thread, hint: Callable[[], str]
    ) -> None:
        """The date running on screen until the producing thread ends."""
        total = sum(len(feed) for feed in year.feeds)
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[say]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("01 Jan 2013", total=total, say="")
            while running.is_alive():
                running.join(REFRESH_S)
                kills = "".join(f" | {k.name} killed" for k in year.kills if k.is_done)
                say = f"{len(ledger.acks):,} acked, {ledger.in_flight} in flight{kills}"
                description = year.date if year.now_ms else "01 Jan 2013"
                progress.update(
                    task, completed=len(ledger.acks), description=description, say=say + hint()
                )
