"""`headwater tier version-of` and `offsets-of`: from offsets to versions of a table, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.options import echo_json, within
from headwater.client.admin.client import Admin
from headwater.errors import UsageError
from headwater.wire.primitives import INT64_MAX
from headwater_tier.cli.table_options import table_location, table_options
from headwater_tier.table_location import locate
from headwater_tier.versions import LOG_RETENTION, ends_at, version_of


@click.command("version-of")
@click.option("--partition", type=int, required=True, callback=within(0, 2**31 - 1), metavar="P")
@click.option("--offset", type=int, required=True, callback=within(0, INT64_MAX), metavar="O")
@table_options
def version_of_offset(partition: int, offset: int, **at: Any) -> int:
    """Show the first version of TOPIC's table that holds an offset."""
    found = version_of(table_location(at), partition, offset)
    time = _iso(found.committed_ms)
    if at["as_json"]:
        echo_json({"version": found.version, "committed": time, "or_earlier": found.is_oldest})
        return 0
    where = f"{at['topic']}-{partition} offset {offset}"
    if found.is_oldest:
        click.echo(
            f"{where}: in version {found.version} ({time}) or an earlier one: the log keeps"
            f" versions for {LOG_RETENTION}"
        )
    else:
        click.echo(f"{where}: since version {found.version} ({time})")
    return 0


@click.command("offsets-of")
@click.option("--version", type=int, callback=within(0, INT64_MAX), metavar="N")
@click.option(
    "--timestamp", metavar="ISO", help="The newest version by then: 2026-11-21T10:00:00Z."
)
@table_options
def offsets_of_version(version: int | None, timestamp: str | None, **at: Any) -> int:
    """Show up to which offset a version of TOPIC's table reaches, by partition (exclusive)."""
    if (version is None) == (timestamp is None):
        raise UsageError("which version? Give --version N or --timestamp ISO")
    moment = version if version is not None else _moment(str(timestamp))
    number, ends = ends_at(table_location(at), moment)
    if at["as_json"]:
        echo_json({"version": number, "ends": {str(p): end for p, end in sorted(ends.items())}})
        return 0
    shown = table(f"{at['topic']}, version {number}", "partition, >end")
    for partition, end in sorted(ends.items()):
        shown.add_row(str(partition), str(end))
    console().print(shown)
    return 0


def group_targets(admin: Admin, topic: str, at: int | datetime) -> Mapping[int, int]:
    """For `headwater groups reset-offsets`: the ends of a version of the topic's table."""
    return ends_at(locate(admin, topic), at)[1]


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--timestamp {text!r}: write it as 2026-11-21T10:00:00+01:00") from None


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
