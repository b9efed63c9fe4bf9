"""The report that a soak prints at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from soak.checker import Anomaly, Findings
from soak.faults import KINDS
from soak.history import excerpt, lines_of
from soak.pauses import Pauses

SHOWN_PER_KIND = 5


class Counted(Protocol):
    """The counts of the schedule."""

    injected: dict[str, int]
    not_now: dict[str, int]
    skipped: dict[str, str]


def print_findings(
    seed: int, counts: Counted, pauses: Pauses, findings: Findings, history: Path
) -> None:
    """The lines of the report."""
    print(f"\nfaults injected: {sum(counts.injected.values())} (seed {seed})")
    for kind in KINDS:
        skipped = counts.skipped.get(kind.name)
        count = f"SKIPPED: {skipped}" if skipped else str(counts.injected.get(kind.name, 0))
        late = counts.not_now.get(kind.name, 0)
        note = f"  ({late} times its precondition did not hold)" if late else ""
        print(f"  {kind.name:24} {count:>5}  {kind.what}{note}")
    print("write pause by kind of kill:")
    for line in pauses.lines():
        print(line)
    print(
        f"records: {findings.sent} sent, {findings.acked} acked, {findings.failed} told as failed; "
        f"{findings.commits} offset commits"
    )
    ends = ", ".join(f"{count} {how}" for how, count in sorted(findings.transactions.items()))
    print(f"transactions: {ends or 'none'}")
    reads = ", ".join(f"{name} {count}" for name, count in sorted(findings.read.items()))
    print(f"reads: {reads}")
    if findings.stood_still:
        print("hung by bugs of librdkafka (docs/fault-harness.md), replaced:")
        for client in findings.stood_still:
            print(f"  {client}")
    _print_anomalies(findings, history)


def _print_anomalies(findings: Findings, history: Path) -> None:
    kinds = findings.kinds()
    shown: list[Anomaly] = []
    for kind in kinds:
        shown += [a for a in findings.anomalies if a.kind == kind][:SHOWN_PER_KIND]
    events = lines_of(history, (line for anomaly in shown for line in anomaly.lines))
    for anomaly in shown:
        print(f"\n{anomaly.kind.upper()}: {anomaly.what}")
        for line in sorted(set(anomaly.lines)):
            if line in events:
                print(f"  {line + 1}: {excerpt(events[line], anomaly.about)}")
    counted = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
    total = len(findings.anomalies)
    print(f"\nanomalies: {total}" + (f" ({counted}); history: {history}" if total else ""))
