"""The city's proof, a row for each figure: on the console, and in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from city.flows import Figure


def proof_table(figures: Sequence[Figure]) -> Table:
    """The proof: what the truth says, what was found; equal ones are green."""
    table = Table(title="The proof: every figure against the truth", title_justify="left")
    for column in ("flow", "figure", "oracle", "found", "equal"):
        table.add_column(column, overflow="fold")
    last = ""
    for figure in figures:
        flow = "" if figure.flow == last else figure.flow
        last = figure.flow
        cells = (flow, *map(escape, (figure.name, figure.oracle, figure.found)))
        equal = "yes" if figure.equal else "NO"
        table.add_row(*cells, equal, style="green" if figure.equal else "bold red")
    return table


def write_proof(path: Path, figures: Sequence[Figure], took_s: float) -> None:
    """The same as JSON, for `make claims` and others."""
    rows = [asdict(figure) for figure in figures]
    path.write_text(json.dumps({"took_s": round(took_s), "figures": rows}, indent=1), "utf-8")


def differences(figures: Sequence[Figure]) -> list[str]:
    """Figures that differ, as sentences; empty when all agree."""
    return [
        f"{figure.flow}, {figure.name}: {figure.oracle} expected, {figure.found} found"
        for figure in figures
        if not figure.equal
    ]
