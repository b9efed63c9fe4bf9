"""The demo's progress on the console: a live line for the year, a spinner for other steps."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rich.progress import BarColumn, Progress, TextColumn

from demos.screen import Screen
from flights.ledger import Ledger
from flights.year import Year

REFRESH_S = 0.25


class YearScreen(Screen):
    """The console with the phases' headings and bars."""

    def follow_year(
        self,
        year: Year,
        ledger: Ledger,
        running: threading.Thread,
        progress_text: Callable[[], str],
    ) -> None:
        """Show the simulated date and the acks until the producing thread ends."""
        total = sum(len(feed) for feed in year.feeds)
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task("01 Jan 2013", total=total, state="")
            while running.is_alive():
                running.join(REFRESH_S)
                kills = "".join(f" | {k.name} killed" for k in year.kills if k.is_done)
                state = f"{len(ledger.acks):,} acked, {ledger.in_flight} in flight{kills}"
                description = year.date if year.now_ms else "01 Jan 2013"
                progress.update(
                    task,
                    completed=len(ledger.acks),
                    description=description,
                    state=state + progress_text(),
                )
