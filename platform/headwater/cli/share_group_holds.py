"""`headwater share-groups holds`: what queries of Spark hold of a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from headwater.cli.command_config import client_credentials
from headwater.cli.console_tables import console, table
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    check_dry_run,
    dry_run_option,
    echo_json,
    json_option,
    open_admin,
    timeout_option,
)
from headwater.client.blocking.record_client import RecordClient
from headwater.client.blocking.share_holds import Held, HoldOutcome, HoldRow, ShareHolds
from headwater.errors import ErrorCode, UsageError
from headwater.system import SystemClock
from headwater.wire.share_hold_operation import ShareHoldOperation

Shown = tuple[HoldRow, Held]


@click.command("holds")
@click.argument("group")
@click.option("--owner", default="", help="Only what this owner holds.")
@click.option("--end", type=click.Choice(["accept", "release"]), default=None,
              help="End all that the owner holds: its query will never run again.")  # fmt: skip
@click.option("--execute", is_flag=True, help="Do it.")
@dry_run_option("what is held")
@timeout_option
@bootstrap_options
@json_option
def holds(
    group: str,
    owner: str,
    end: str | None,
    execute: bool,
    dry_run: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    timeout_ms: int,
) -> int:
    """Show which records the queries of Spark hold, or end the holds of a query that is gone:
    `accept` when its last batch was written, else `release`."""
    check_dry_run(dry_run, execute)
    if (end or execute) and not owner:
        raise UsageError("--end and --execute need --owner, as `holds` shows it")
    if execute and end is None:
        raise UsageError("--execute needs --end accept or --end release")
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        partitions = sorted(admin.list_share_group_offsets(group))
    servers = bootstrap_servers(bootstrap_server, directory)
    with RecordClient(servers, credentials=client_credentials()) as client:
        topics = client.metadata(sorted({tp.topic for tp in partitions}))
        rows = [HoldRow(tp.topic, topics[tp.topic].topic_id, tp.partition) for tp in partitions]
        asked = ShareHolds(client, group, SystemClock(), retry_timeout_s=timeout_ms / 1000)
        found = _shown(asked.ask(ShareHoldOperation.DESCRIBE, rows), owner)
        if execute:
            is_accept = end == "accept"
            ends = ShareHoldOperation.END_ACCEPTED if is_accept else ShareHoldOperation.END_RELEASED
            _shown(asked.ask(ends, rows, owner), owner)
    _print(found, as_json=as_json)
    if not as_json and end:
        done = f"{end}ed" if end == "accept" else f"{end}d"
        click.echo(f"{done} for good" if execute else f"to be {done}: give --execute")
    return 0


def _shown(outcomes: Mapping[HoldRow, HoldOutcome], owner: str) -> list[Shown]:
    found: list[Shown] = []
    for row, outcome in outcomes.items():
        error = outcome.error
        if error is not None and error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
        found += [(row, held) for held in outcome.holds if not owner or held.owner == owner]
    return found


def _print(found: Sequence[Shown], *, as_json: bool) -> None:
    if as_json:
        echo_json([_document(row, held) for row, held in found])
        return
    rows = table(None, "owner, batch, topic, partition, first offset, last offset")
    for row, held in found:
        rows.add_row(
            *(held.owner, str(held.batch), row.topic, str(row.partition)),
            *(str(held.first), str(held.last)),
        )
    console().print(rows)


def _document(row: HoldRow, held: Held) -> dict[str, Any]:
    return {
        "owner": held.owner,
        "batch": held.batch,
        "topic": row.topic,
        "partition": row.partition,
        "first_offset": held.first,
        "last_offset": held.last,
    }
