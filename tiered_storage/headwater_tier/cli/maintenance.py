"""`headwater tier repair | compact | vacuum TOPIC`: maintenance of a table by hand. No Spark."""

from __future__ import annotations

from typing import Any

import click

from headwater.cli.options import echo_json
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.cli.table_options import table_location, table_options
from headwater_tier.compaction import COMPACT_FILES_MIN, HOUR_MS, compact
from headwater_tier.fence_repair import repair
from headwater_tier.typed.vacuum import vacuum_derived
from headwater_tier.vacuum import VACUUM_AGE_DEFAULT_MS, VACUUM_AGE_MIN_MS, vacuum


@click.command("repair")
@table_options
def repair_table(as_json: bool, **at: Any) -> int:
    """Rebuild tiered ends, starts and row count of TOPIC's table from its rows.

    For use after a foreign commit: first restore the version before it, or accept it.
    """
    ends = repair(table_location(at), clock=SystemClock())
    if as_json:
        echo_json({"topic": at["topic"], "ends": {str(p): end for p, end in ends.items()}})
        return 0
    for partition, end in sorted(ends.items()):
        click.echo(f"{at['topic']}-{partition}: tiered up to offset {end}")
    click.echo("repaired; `headwater verify` compares the table with the topic")
    return 0


@click.command("compact")
@table_options
@click.option(
    "--files-min",
    type=click.IntRange(min=2),
    default=COMPACT_FILES_MIN,
    show_default=True,
    help="Small files that are rewritten as one, at least.",
)
def compact_table(files_min: int, as_json: bool, **at: Any) -> int:
    """Rewrite small files of TOPIC's table as large ones; `tier run` does so by itself."""
    location, replaced = table_location(at), 0
    while True:
        files = compact(location, clock=SystemClock(), entropy=SystemEntropy(), files_min=files_min)
        if not files:
            break
        replaced += files
    if as_json:
        echo_json({"topic": at["topic"], "files_replaced": replaced})
    else:
        click.echo(f"{at['topic']}: {replaced} files rewritten")
    return 0


@click.command("vacuum")
@table_options
@click.option(
    "--older-than",
    "hours",
    type=click.IntRange(min=VACUUM_AGE_MIN_MS // HOUR_MS),
    default=VACUUM_AGE_DEFAULT_MS // HOUR_MS,
    show_default=True,
    metavar="HOURS",
    help="Keep files that a table version of the last HOURS needs.",
)
def vacuum_table(hours: int, as_json: bool, **at: Any) -> int:
    """Delete files of TOPIC's tables that no recent version needs, and files of killed jobs."""
    location = table_location(at)
    gone = vacuum(location, age_ms=hours * HOUR_MS)
    gone += vacuum_derived(location, age_hours=hours)
    if as_json:
        echo_json({"topic": at["topic"], "files": gone})
    else:
        click.echo(f"{at['topic']}: {len(gone)} files deleted")
    return 0
