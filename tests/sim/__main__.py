"""`python -m sim --seeds N [--from S]` runs many worlds; `--seed S` runs one and prints its log.

`--only consumer`, `classic` or `share`: worlds with nothing but such a group; `--only groups`: with
one of each in turn; `--only lone`: with transactional clients whose logs have no followers.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import Counter
from functools import partial

import click

from sim.plan import GROUP_KINDS, LONE, plan_of
from sim.world import Outcome, run

STORY_LINES = 150
PROGRESS_SEEDS = 50
"""A run that is ended from outside has told how far it was."""
SEEDS_PER_PROCESS = 20
"""Worlds per process, so that its memory is freed now and then."""


@click.command()
@click.option("--seeds", default=100, show_default=True, help="The number of worlds.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", "single", type=int, default=None, help="Only this one, with its log.")
@click.option("--only", type=click.Choice([*GROUP_KINDS, "groups", LONE]), help="Only such worlds.")
@click.option("--lines", default=STORY_LINES, show_default=True, help="The last lines of its log.")
def main(seeds: int, first: int, single: int | None, only: str | None, lines: int) -> None:
    """Simulate whole clusters under faults, one seed each."""
    if single is not None:
        sys.exit(_tell(_world(single, only, tells=True), lines))
    live = partial(_live, only=only)
    began, events, failed = time.perf_counter(), 0, []
    acked, faults = 0, Counter[str]()
    administered, transactions, groups = Counter[str](), Counter[str](), Counter[str]()
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        for outcome in pool.imap(live, range(first, first + seeds)):
            events += outcome.events
            acked += outcome.acked
            faults.update(outcome.counts)
            administered.update(outcome.administered)
            transactions.update(outcome.transactions)
            groups.update(outcome.groups)
            if outcome.violation is not None:
                failed.append(outcome.seed)
                click.echo(f"seed {outcome.seed}: {outcome.violation}")
            done = outcome.seed - first + 1
            if done % PROGRESS_SEEDS == 0 and done < seeds:
                so_far = f"{done} of {seeds} seeds, {len(failed)} failed"
                click.echo(f"{so_far}, {time.perf_counter() - began:.0f} s", err=True)
    elapsed = time.perf_counter() - began
    click.echo(
        f"{seeds} seeds, {len(failed)} failed; {events:,} events in {elapsed:.1f} s "
        f"({events / elapsed:,.0f}/s); {acked:,} batches acked; "
        f"faults: {_listed(faults)}; admin: {_listed(administered)}; "
        f"transactions: {_listed(transactions)}; groups: {_listed(groups)}"
    )
    if failed:
        again = f"make sim SEED={failed[0]}" + (f" ARGS='--only {only}'" if only else "")
        click.echo(f"\nthe log of seed {failed[0]} (again: {again}):\n")
        _tell(_world(failed[0], only, tells=True), lines)
        sys.exit(1)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{times} {name}" for name, times in counts.most_common())


def _world(seed: int, only: str | None, *, tells: bool = False) -> Outcome:
    return run(seed, tells=tells, plan=None if only is None else plan_of(seed, only))


def _live(seed: int, only: str | None) -> Outcome:
    outcome = _world(seed, only)
    outcome.log.clear()
    return outcome


def _tell(outcome: Outcome, lines: int) -> int:
    for line in outcome.log[-lines:]:
        click.echo(line)
    click.echo(f"seed {outcome.seed}: {outcome.violation or 'all invariants held'}")
    return 0 if outcome.violation is None else 1


if __name__ == "__main__":
    main()
