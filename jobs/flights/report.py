"""The demo's tables: hops, steps, kills, controls, facts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from flights.bulk_replay import Step
from flights.ledger import Ledger
from flights.negative_control import Control
from flights.proof import AlertVerdict, Verdict
from flights.year import Year

STEP_COLUMNS = ("step", "rows", "seconds", "rows/s", "checksum")
PROOF_COLUMNS = ("hop", "read by", "rows", "missing", "duplicate", "altered", "order breaks", "sha")
ALERT_COLUMNS = ("fact", "found", "expected")
RIGHT = (
    "found",
    "expected",
    "rows",
    "missing",
    "duplicate",
    "altered",
    "order breaks",
    "rows/s",
    "seconds",
    "in flight",
)


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="right" if name in RIGHT else "left")
    return table


def proof_table(verdicts: Sequence[Verdict]) -> Table:
    """The proof, a row per hop; clean hops are green."""
    table = _table("The proof: flights and weather, every hop", PROOF_COLUMNS)
    first = verdicts[0].digest
    for v in verdicts:
        counts = (v.missing, v.duplicate, v.altered, v.order_breaks)
        style = "green" if v.is_clean and v.digest == first else "bold red"
        cells = (v.hop, v.read_by, f"{v.rows:,}", *(f"{c:,}" for c in counts), v.digest)
        table.add_row(*cells, style=style)
    return table


def steps_table(steps: Sequence[Step]) -> Table:
    """The timed steps of the bulk replay."""
    table = _table("Full speed: the year replayed", STEP_COLUMNS)
    for s in steps:
        cells = (s.name, f"{s.rows:,}", f"{s.seconds:.1f}", f"{s.rate:,.0f}")
        table.add_row(*cells, f"{s.checksum:016x}")
    return table


def kills_table(year: Year, ledger: Ledger) -> Table:
    """The kills, and the pause in acknowledgements after each."""
    table = _table("Two kills", ("kill", "victim", "in flight", "longest time without writes"))
    for kill in year.kills:
        pause = f"{ledger.pause_ms(kill.killed_at_s):,.0f} ms"
        table.add_row(kill.name, kill.victim, str(kill.in_flight), pause)
    return table


def controls_table(controls: Sequence[Control]) -> Table:
    """The negative control: the damaged copies, and whether the proof found the fault."""
    table = _table("Negative control: damaged copies of the table", ("fault", "verdict", "named"))
    for c in controls:
        v = c.verdict
        said = f"missing {v.missing}, duplicate {v.duplicate}, altered {v.altered}"
        style = "green" if c.is_named else "bold red"
        table.add_row(c.fault, said, "yes" if c.is_named else "NO", style=style)
    return table


def facts_table(facts: Sequence[tuple[str, str, str]]) -> Table:
    """Well-known figures of the data set beside the figures of the Delta table."""
    table = _table("Public facts", ("fact", "expected", "found in Delta"))
    for name, expected, found in facts:
        table.add_row(name, expected, found, style="green" if expected == found else "bold red")
    return table


def alerts_table(verdict: AlertVerdict) -> Table:
    """The alerts topic beside the expected ids, and its epochs beside the query's micro-batches."""
    table = _table("Alerts, exactly once: one micro-batch is one epoch", ALERT_COLUMNS)
    rows = (
        ("alerts in the topic, read committed", verdict.records, verdict.expected),
        ("distinct ids", verdict.distinct, verdict.expected),
        ("missing, unexpected, duplicate", verdict.wrong, 0),
        ("last epoch of the sink, last micro-batch", verdict.last_epoch, verdict.last_batch),
        ("epochs that are not complete", verdict.open_epochs, 0),
    )
    for name, found, expected in rows:
        style = "green" if found == expected else "bold red"
        table.add_row(name, f"{found:,}", f"{expected:,}", style=style)
    return table
