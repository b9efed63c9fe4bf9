"""The claims that are made for Kafka, measured here: `make claims` writes docs/claims.md.

Each trial takes seconds: it shows that a claim holds by a figure of this machine, not how far it
goes; the benches do that, by turns with Apache Kafka. Exit 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

import claim_faults
import claim_trials
from claim_console import console_filter
from claim_trials import Finding
from claims_of_city import rows_of_city
from measures import python
from peers import ROOT
from rich.console import Console
from scale_cluster import cluster

TRIALS = ((1, (*claim_trials.TRIALS, console_filter)), (3, claim_faults.TRIALS))
"""(brokers, trials)."""
PAGE = ROOT / "docs" / "claims.md"
CITY = ROOT / "city-out" / "proof.json"
HEAD = """# Claims, measured

What is claimed for Kafka and for what is built around it, and what `make claims` found: short
trials on one machine ({machine}), written by the run. Statements:
[spec-integrations.md](spec-integrations.md). A trial alone: `make claims ARGS="--only NAME"`.

| claim | statement | figure here | holds | trial |
|---|---|---|---|---|
"""
ELSEWHERE_HEAD = """
Claims that are shown by a run of their own:

| claim | statement | figure of the last run here | command |
|---|---|---|---|
"""
ELSEWHERE = (
    (
        "throughput, latency, CPU beside Apache Kafka",
        "B3-437, S3-002",
        "in the [README](../README.md)",
        "`make bench-kafka`",
    ),
    (
        "constant access time, 50 GB beside 1 GB, by 24,000 reads",
        "B3-438",
        "see `flat` above",
        "`make bench-scale`",
    ),
    (
        "batch, real time, logs, messaging as uses",
        "S3-009, B3-441",
        "none: each use is a test of a peer's own connector",
        "`make integrations`",
    ),
)


def measured(names: list[str]) -> dict[str, Finding]:
    """The findings of all trials, or of those named."""
    console = Console(stderr=True)
    found: dict[str, Finding] = {}
    for brokers, trials in TRIALS:
        asked = [trial for trial in trials if not names or trial.__name__ in names]
        if not asked:
            continue
        with cluster(f"claims-{brokers}", brokers) as made:
            for trial in asked:
                found[trial.__name__] = trial(made)
                console.print(f"{trial.__name__}: {found[trial.__name__].figure}")
    return found


def page(findings: dict[str, Finding], proof: Path) -> str:
    """The text of docs/claims.md."""
    machine = f"{os.cpu_count()} cores, {platform.system()}, {python().partition(' of ')[0]}"
    rows = [
        f"| {f.claim} | {f.rows} | {f.figure} | {'yes' if f.holds else '**no**'} | `{name}` |\n"
        for name, f in findings.items()
    ]
    others = [f"| {' | '.join(row)} |\n" for row in (*rows_of_city(proof), *ELSEWHERE)]
    return HEAD.format(machine=machine) + "".join(rows) + ELSEWHERE_HEAD + "".join(others)


def main() -> int:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = [trial.__name__ for _, trials in TRIALS for trial in trials]
    parser.add_argument("--only", action="append", choices=every, help="these; writes no page")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--city", type=Path, default=CITY, help="proof.json of a run of the city")
    options = parser.parse_args()
    findings = measured(options.only or [])
    if options.only is None:
        options.page.write_text(page(findings, options.city))
    return 0 if all(f.holds for f in findings.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
