"""The progress bar of `headwater cluster`, on a terminal's stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from headwater.local.manager import Progress


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress]:
    """A Progress that is shown while the context is open, if stderr is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    is_hidden = quiet or not console.is_terminal
    bar = Bar(*columns, TimeElapsedColumn(), console=console, disable=is_hidden, transient=True)
    with bar:
        task = bar.add_task("asking the cluster's manager", total=None)

        def progress(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        yield progress
