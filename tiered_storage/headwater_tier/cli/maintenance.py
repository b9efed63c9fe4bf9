"""`headwater tier repair | compact | vacuum TOPIC`: maintenance of a table by hand. No Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.locate import locate
from headwater_tier.plan import TableLocation
from headwater_tier.table_maintenance import (
    COMPACT_FILES_MIN,
    HOUR_MS,
    VACUUM_AGE_DEFAULT_MS,
    VACUUM_AGE_MIN_MS,
    compact,
    repair,
    vacuum,
)
from headwater_tier.verify_command import storage_options

F = TypeVar("F", bound=Callable[..., Any])


def _table_options(function: F) -> F:
    """TOPIC and the options that locate its table; the command gets them as `at`."""
    for option in (
        click.option(
            "--tables-uri", metavar="URI", help="Base folder of tables when no config has one."
        ),
        click.option(
            "--storage-option",
            "options",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the object store; repeatable.",
        ),
    ):
        function = option(function)
    return click.argument("topic")(json_option(bootstrap_options(function)))


def _location(at: dict[str, Any]) -> TableLocation:
    with open_admin(at["bootstrap_server"], at["directory"]) as admin:
        return locate(
            admin,
            at["topic"],
            tables_uri=at["tables_uri"],
            storage_options=storage_options(at["options"]),
        )


@click.command("repair")
@_table_options
def repair_table(as_json: bool, **at: Any) -> int:
    """Rebuild tiered ends, starts and row count of TOPIC's table from its rows.

    For use after a foreign commit: first restore the version before it, or accept it.
    """
    ends = repair(_location(at), clock=SystemClock())
    if as_json:
        echo_json({"topic": at["topic"], "ends": {str(p): end for p, end in ends.items()}})
        return 0
    for partition, end in sorted(ends.items()):
        click.echo(f"{at['topic']}-{partition}: tiered up to offset {end}")
    click.echo("repaired; `headwater verify` compares the table with the topic")
    return 0


@click.command("compact")
@_table_options
@click.option(
    "--files-min",
    type=click.IntRange(min=2),
    default=COMPACT_FILES_MIN,
    show_default=True,
    help="Small files that are rewritten as one, at least.",
)
def compact_table(files_min: int, as_json: bool, **at: Any) -> int:
    """Rewrite small files of TOPIC's table as large ones; `tier run` does so by itself."""
    location, replaced = _location(at), 0
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
@_table_options
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
    """Delete files of TOPIC's table that no recent version needs, and files of killed jobs."""
    gone = vacuum(_location(at), age_ms=hours * HOUR_MS)
    if as_json:
        echo_json({"topic": at["topic"], "files": gone})
    else:
        click.echo(f"{at['topic']}: {len(gone)} files deleted")
    return 0
