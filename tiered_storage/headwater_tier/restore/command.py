"""`headwater restore --from URI`: a cluster again from its Delta tables, when all else is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from headwater.cli.command_config import client_security, command_config_option
from headwater.cli.options import command_for, dir_option, echo_json, json_option, within
from headwater.cli.settings import parse_settings
from headwater.cli.up import TABLE_OPTION, check_ensemble, check_properties
from headwater.client.admin.client import Admin
from headwater.errors import UsageError
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_nodes import ZooKeeperNodes
from headwater.security.sealed import Sealer, read_key
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.restore_names import RESTORE_CLIENT_ID
from headwater_tier.cli.catalog_options import zookeeper_security_of
from headwater_tier.cli.storage_options import HELP, storage_options, tables_config_option
from headwater_tier.restore import restore_plan as plan
from headwater_tier.restore.groups import GroupRestore, GroupsReport
from headwater_tier.restore.local_cluster import LocalTarget, local_spec, running
from headwater_tier.restore.tables_and_zookeeper import (
    MetadataReport,
    MetadataRestore,
    Source,
    State,
)
from headwater_tier.service.service_properties import table_properties

NAMES_SHOWN_MAX = 10
MINUTE_S = 60


@click.command()
@click.option("--from", "base", required=True, metavar="URI", help="Base folder of the tables.")
@dir_option
@click.option("--port", type=int, metavar="P", help="Port of the first broker. [default: 9092]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As of `headwater up`.")
@click.option("--secure", is_flag=True, help="As of `headwater up`.")
@click.option("--zookeeper", metavar="HOST:PORT,.../chroot", help="Restore into this ensemble.")
@click.option(
    "--zookeeper-config",
    metavar="FILE",
    help="Properties with the brokers' headwater.zookeeper.digest and zookeeper.ssl.*.",
)
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT,...",
    help="With --zookeeper: its brokers, now running.",
)
@command_config_option
@click.option("--key-file", metavar="FILE", help="The catalog's key: opens SCRAM credentials.")
@click.option("--storage-option", "storage", multiple=True, metavar="KEY=VALUE", help=HELP)
@tables_config_option
@click.option(
    "--offset-gap",
    type=int,
    callback=within(1, plan.FIRST_OFFSET_MAX),
    metavar="N",
    help="Offsets left out in each partition, as they may have been given after the last look."
    " [default: ten million per second since then, 100 million at least]",
)
@click.option(
    "--repair-tables", "repairs", is_flag=True, help="Accept tables that somebody else has changed."
)
@json_option
def restore(
    base: str,
    directory: str,
    port: int | None,
    settings: tuple[str, ...],
    secure: bool,
    zookeeper: str | None,
    zookeeper_config: str | None,
    bootstrap_server: str | None,
    key_file: str | None,
    storage: tuple[str, ...],
    tables_config: str | None,
    offset_gap: int | None,
    repairs: bool,
    as_json: bool,
) -> int:
    """Rebuild a cluster whose disks and ZooKeeper are gone, from its tables and their catalog.

    Topics keep their ids, configs and history, groups and share groups their offsets; users, ACLs
    and quotas are back. Without --zookeeper it does so in the folder --dir, for `headwater up`.
    With it, run the command once, start the brokers, and run it again with --bootstrap-server. A
    run that was interrupted goes on when it is repeated.
    """
    given = (*table_properties(tables_config, {})[1], *storage_options(storage))
    source = Source(_base(base), (*table_properties(None, os.environ)[1], *given))
    entropy = SystemEntropy()
    sealer = Sealer(read_key(key_file, "--key-file"), entropy) if key_file else None
    halves = _Halves(source, sealer, offset_gap, repairs=repairs)
    if zookeeper is None:
        if bootstrap_server is not None:
            raise UsageError("--bootstrap-server goes with --zookeeper: give both, or neither")
        properties = {f"{TABLE_OPTION}{key}": value for key, value in given}
        properties |= check_properties(parse_settings(settings, "--set"))
        target = _target(source, directory, port, properties, secure)
        found = _restore_here(halves, target, quiet=as_json)
    else:
        check_ensemble(zookeeper)
        security = zookeeper_security_of(directory, zookeeper_config)
        found = _restore_there(halves, zookeeper, security, bootstrap_server)
    if as_json:
        echo_json(_document(*found))
        return 0
    _print(*found)
    if zookeeper is None:
        click.echo(f"start it: {command_for('up', directory)}")
    elif found[1] is None:
        click.echo("now start the brokers, then run this command again with --bootstrap-server")
    return 0


class _Halves:
    """Both halves of a restore, with what they need."""

    def __init__(
        self, source: Source, sealer: Sealer | None, gap: int | None, *, repairs: bool
    ) -> None:
        self.source, self._sealer, self._gap, self._repairs = source, sealer, gap, repairs
        self.clock = SystemClock()

    def metadata(self, nodes: ZooKeeperNodes) -> MetadataReport:
        """Tables and ZooKeeper."""
        return self._first(nodes).run()

    def _first(self, nodes: ZooKeeperNodes) -> MetadataRestore:
        opened = self._sealer.open if self._sealer else None
        return MetadataRestore(
            nodes, self.source, self.clock, opened, self._gap, repairs=self._repairs
        )

    def groups(self, admin: Admin, report: MetadataReport, nodes: ZooKeeperNodes) -> GroupsReport:
        """Groups' offsets; then the restore is done."""
        second = GroupRestore(admin, self.source, report, self.clock)
        done = second.run()
        second.admit_groups()
        self._first(nodes).set_state(State.DONE)
        return done


def _base(text: str) -> str:
    """The base folder in the form of headwater.tables.uri."""
    if "://" in text:
        return text.rstrip("/")
    return Path(text).expanduser().resolve().as_uri()


def _target(
    source: Source, directory: str, port: int | None, properties: dict[str, str], secure: bool
) -> LocalTarget:
    catalog = source.catalog().catalog()
    return LocalTarget(
        directory=directory,
        cluster_id=plan.cluster_id(catalog),
        broker_ids=plan.broker_ids(plan.topics(catalog)),
        base_port=port,
        tables_uri=source.base,
        properties=properties,
        secure=secure,
    )


def _restore_here(
    halves: _Halves, target: LocalTarget, *, quiet: bool
) -> tuple[MetadataReport, GroupsReport | None]:
    found: list[MetadataReport] = []
    security: list[ZooKeeperSecurity] = []

    def before(zookeeper: str, credentials: ZooKeeperSecurity) -> None:
        security.append(credentials)
        with ZooKeeperNodes(zookeeper, credentials) as nodes:
            found.append(halves.metadata(nodes))

    spec = local_spec(target)
    with (
        running(spec, before, _progress(quiet)) as admin,
        ZooKeeperNodes(spec.zookeeper, security[0]) as nodes,
    ):
        return found[0], halves.groups(admin, found[0], nodes)


def _restore_there(
    halves: _Halves, zookeeper: str, security: ZooKeeperSecurity, servers: str | None
) -> tuple[MetadataReport, GroupsReport | None]:
    with ZooKeeperNodes(zookeeper, security) as nodes:
        report = halves.metadata(nodes)
        if servers is None:
            return report, None
        with Admin(servers, client_id=RESTORE_CLIENT_ID, **client_security()) as admin:
            return report, halves.groups(admin, report, nodes)


def _progress(quiet: bool) -> Callable[[str, int, int], None]:
    def show(text: str, done: int, total: int) -> None:
        if not quiet and sys.stderr.isatty():
            click.echo(f"{text} ({done}/{total})", err=True)

    return show


def _age(age_ms: int) -> str:
    seconds = age_ms // 1000
    return f"{seconds} s" if seconds < MINUTE_S else f"{timedelta(seconds=seconds)} (h:mm:ss)"


def _document(report: MetadataReport, second: GroupsReport | None) -> dict[str, object]:
    return {
        "cluster_id": report.cluster_id,
        "catalog_version": report.catalog_version,
        "catalog_time_ms": report.catalog_time_ms,
        "observed_ms": report.observed_ms,
        "observed_age_ms": report.observed_age_ms,
        "topics": len(report.topics),
        "topics_without_records": report.without_records,
        "users_left_out": report.users_left_out,
        "groups": None if second is None else second.groups,
        "offsets": None if second is None else second.offsets,
        "share_groups": None if second is None else second.share_groups,
        "start_offsets": None if second is None else second.start_offsets,
        "done": second is not None,
    }


def _print(report: MetadataReport, second: GroupsReport | None) -> None:
    time = datetime.fromtimestamp(report.catalog_time_ms / 1000, UTC)
    click.echo(
        f"cluster {report.cluster_id}, as of {time:%Y-%m-%d %H:%M:%S} UTC"
        f" (catalog version {report.catalog_version})"
    )
    click.echo(f"log ends were last seen {_age(report.observed_age_ms)} before this run")
    partitions = sum(len(topic.replicas) for topic in report.topics)
    click.echo(f"{len(report.topics)} topics with {partitions} partitions, ids as before")
    lost = report.without_records
    if lost:
        more = ", ..." if len(lost) > NAMES_SHOWN_MAX else ""
        click.echo(
            f"{len(lost)} topics were not tiered, their records are lost:"
            f" {', '.join(lost[:NAMES_SHOWN_MAX])}{more}"
        )
    if report.users_left_out:
        click.echo(
            f"{report.users_left_out} SCRAM users are left out: give --key-file, or make them anew"
        )
    if second is not None:
        click.echo(f"{second.groups} groups with {second.offsets} offsets")
        if second.share_groups:
            click.echo(
                f"{second.share_groups} share groups with {second.start_offsets} start offsets"
            )
