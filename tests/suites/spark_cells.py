"""The outcomes of `suites.spark_matrix` as tables of docs/fault-harness.md.

A run replaces the cells that it ran and keeps the others, so the matrix may be run in slices: each
cell has the day of its own last run.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from suites.spark_judge import Finding

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fault-harness.md"
CELLS = "spark-cells-{kind}"
"""The block of one kind of query."""
LINES = "spark-runs"
"""The block of planted bugs and of random kills: a line for each."""
NOT_RUN = "not run"

Outcomes = dict[tuple[str, str], str]
"""(step, victim) -> what the table says."""


def outcome(findings: Sequence[Finding], seconds: float, day: datetime.date) -> str:
    """The words of a cell."""
    if not findings:
        return f"held {day.isoformat()}, {seconds:.0f} s"
    kinds = ", ".join(sorted({finding.kind for finding in findings}))
    return f"**{kinds}** {day.isoformat()}"


def block_of(page: str, name: str) -> str:
    """What stands in a block. Raises ValueError when the page has no such block."""
    found = re.search(f"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", page, re.S)
    if found is None:
        raise ValueError(f"no block {name}")
    return found[1].strip()


def with_block(page: str, name: str, body: str) -> str:
    """The page with another content of a block. Raises ValueError like `block_of`."""
    block_of(page, name)
    pattern = re.compile(f"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
    return pattern.sub(lambda found: f"{found[1]}\n{body}\n\n{found[2]}", page)


def parsed(text: str) -> Outcomes:
    """The cells of a table."""
    rows = [_split(line) for line in text.splitlines() if line.startswith("|")]
    if not rows:
        return {}
    heads, body = rows[0], rows[2:]
    return {
        (row[0].strip("`"), head.strip("`")): cell
        for row in body
        for head, cell in zip(heads[1:], row[1:], strict=True)
        if cell != NOT_RUN
    }


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(steps: Sequence[str], victims: Sequence[str], found: Outcomes) -> str:
    """Steps down, victims across."""
    lines = ["| step | " + " | ".join(f"`{v}`" for v in victims) + " |"]
    lines.append("|---" * (len(victims) + 1) + "|")
    for step in steps:
        cells = [found.get((step, victim), NOT_RUN) for victim in victims]
        lines.append(f"| `{step}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_cells(
    kind: str, steps: Sequence[str], victims: Sequence[str], new: Outcomes, page: Path = PAGE
) -> None:
    """Put new outcomes into the table of this kind of query."""
    name, text = CELLS.format(kind=kind), page.read_text()
    found = {**parsed(block_of(text, name)), **new}
    page.write_text(with_block(text, name, table(steps, victims, found)))


def write_lines(new: Mapping[str, str], page: Path = PAGE) -> None:
    """Put lines of runs into the list: what ran -> what came of it."""
    text = page.read_text()
    rows = [_split(line) for line in block_of(text, LINES).splitlines() if line.startswith("|")]
    found = {**{row[0]: row[1] for row in rows[2:]}, **new}
    lines = ["| run | outcome |", "|---|---|", *(f"| {k} | {v} |" for k, v in found.items())]
    page.write_text(with_block(text, LINES, "\n".join(lines)))
