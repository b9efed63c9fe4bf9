"""`headwater tier catalog`: keeps `_headwater_catalog`, from which `headwater restore` rebuilds."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime

import click

from headwater.cli.command_config import client_credentials
from headwater.cli.options import bootstrap_options, bootstrap_servers, echo_json, json_option
from headwater.errors import HeadwaterError, UsageError
from headwater.system import SystemClock
from headwater_tier.catalog.open import CatalogOptions, OpenCatalog, find_catalog
from headwater_tier.catalog.rows import Kind
from headwater_tier.catalog.table import CatalogTable
from headwater_tier.catalog.writer import CatalogStatus
from headwater_tier.cli.catalog_options import (
    catalog_options,
    zookeeper_of,
    zookeeper_security_of,
)
from headwater_tier.cli.storage_options import HELP, storage_options, tables_config_option
from headwater_tier.service.service_properties import table_properties

TICK_S = 0.3


@click.command()
@bootstrap_options
@catalog_options
@click.option("--tables-uri", metavar="URI", help="Base folder of tables when no config has one.")
@click.option("--storage-option", "storage", multiple=True, metavar="KEY=VALUE", help=HELP)
@tables_config_option
@click.option("--once", is_flag=True, help="Commit what differs now, and end.")
@click.option("--show", is_flag=True, help="Show what the catalog holds, and how old it is.")
@json_option
def catalog(
    bootstrap_server: str | None,
    directory: str,
    zookeeper: str | None,
    zookeeper_config: str | None,
    tables_uri: str | None,
    storage: tuple[str, ...],
    tables_config: str | None,
    key_file: str | None,
    once: bool,
    show: bool,
    as_json: bool,
) -> int:
    """Keep the table _headwater_catalog: topics, configs, ACLs, quotas, users, offsets of groups.

    `headwater tier serve` does so by itself.
    """
    needs_brokers = not (show and tables_uri)  # after the loss of all there are none
    options = CatalogOptions(
        bootstrap_servers=bootstrap_servers(bootstrap_server, directory) if needs_brokers else "",
        zookeeper="" if show else zookeeper or _zookeeper(directory),
        tables_uri=tables_uri or table_properties(tables_config, {})[0],
        storage_options=(
            *table_properties(tables_config, os.environ)[1],
            *storage_options(storage),
        ),
        key_file=key_file or "",
        credentials=client_credentials(),
        zookeeper_security=zookeeper_security_of(directory, zookeeper_config),
    )
    if show:
        return _show(find_catalog(options), as_json=as_json)
    with OpenCatalog(options) as opened:
        if not once:
            return _run(opened)
        rows = opened.writer.tick()
        status = opened.writer.status
    if status.last_error:
        raise HeadwaterError(status.last_error)
    if as_json:
        echo_json({"rows": rows, **asdict(status)})
    else:
        click.echo(f"{rows} rows committed to {status.uri}, version {status.version}")
    for line in warnings(status):
        click.echo(line, err=True)
    return 0


def _show(table: CatalogTable, *, as_json: bool) -> int:
    found = table.catalog()
    counts = Counter(kind.value for kind, _ in found)
    newest_ms = max((row.time_ms for row in table.rows()), default=0)
    time_text = datetime.fromtimestamp(newest_ms / 1000, UTC).isoformat(timespec="seconds")
    age_s = (SystemClock().now_ms() - newest_ms) / 1000
    if as_json:
        document = {"uri": table.uri, "version": table.version, "newest": time_text, "age_s": age_s}
        echo_json({**document, "rows": dict(sorted(counts.items()))})
        return 0
    click.echo(f"{table.uri}, version {table.version}: as of {time_text}, {age_s:.0f} s ago")
    for kind, count in sorted(counts.items()):
        click.echo(f"  {kind}: {count}")
    if not counts[Kind.SCRAM.value]:
        click.echo("  no SCRAM credentials")
    return 0


def warnings(status: CatalogStatus) -> list[str]:
    """What a restore from this catalog would lack."""
    lines = []
    if not status.keeps_credentials:
        lines.append(
            "SCRAM users are not kept: set headwater.catalog.key.file (openssl rand -base64 32)"
        )
    if status.unreadable:
        lines.append(
            f"not readable in ZooKeeper: {', '.join(status.unreadable)}: give --zookeeper-config"
        )
    return lines


def _zookeeper(directory: str) -> str:
    found = zookeeper_of(directory)
    if not found:
        raise UsageError(f"which ZooKeeper? {directory} holds no cluster: give --zookeeper")
    return found


def _run(opened: OpenCatalog) -> int:
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, _frame: asked.append(signum))
    click.echo("catalog: running")
    for line in warnings(opened.writer.status):
        click.echo(line, err=True)
    while not asked:
        opened.writer.tick()
        time.sleep(TICK_S)
    return 0
