"""A demo's progress on the console: headings, and a spinner for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Screen:
    """The console with the phases' headings and steps."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def heading(self, text: str) -> None:
        """Print the heading of a phase."""
        self.console.print()
        self.console.rule(f"[bold]{text}", align="left")

    @contextmanager
    def working(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner during a step; the yielded function changes its text."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(text)

            def show(text: str) -> None:
                progress.update(task, description=text)

            yield show
            took_s = progress.tasks[task].elapsed or 0.0
        self.console.print(f"  [green]done[/] {text} ({took_s:.0f} s)", highlight=False)
