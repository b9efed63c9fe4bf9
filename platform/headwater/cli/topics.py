"""`headwater topics`: create, list, describe, delete, alter."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from headwater.cli.assignments import parse_settings
from headwater.cli.options import bootstrap_options, bootstrap_servers, echo_json, json_option
from headwater.cli.tables import console, table
from headwater.client.admin import Admin
from headwater.client.values import NewTopic, PartitionDescription, TopicDescription
from headwater.errors import ErrorCode, KafkaError, UsageError

DEFAULT = -1  # on the wire: the broker's own default


@click.group()
def topics() -> None:
    """Create, list, describe, delete and grow topics."""


@topics.command("create")
@click.argument("name")
@click.option("--partitions", type=int, default=DEFAULT, metavar="N")
@click.option("--replication-factor", type=int, default=DEFAULT, metavar="N")
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists.")
@bootstrap_options
@json_option
def create(
    name: str,
    partitions: int,
    replication_factor: int,
    settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Create a topic; defaults come from the brokers."""
    for option, value in (("partitions", partitions), ("replication-factor", replication_factor)):
        if value != DEFAULT and value < 1:
            raise UsageError(f"--{option} {value}: give 1 or more")
    configs = parse_settings(settings, "--config")
    created = True
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        try:
            admin.create_topics([NewTopic(name, partitions, replication_factor, configs)])
        except KafkaError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            created = False
        described = admin.describe_topics([name])[name]
    if as_json:
        echo_json({"created": created, **_document(described)})
    else:
        count = len(described.partitions)
        verb = "created" if created else "exists:"
        click.echo(f"{verb} {name}: {count} partitions, {_copies(described)} replicas each")
    return 0


@topics.command("list")
@click.option("--internal", is_flag=True, help="Internal topics too.")
@bootstrap_options
@json_option
def list_topics(internal: bool, bootstrap_server: str | None, directory: str, as_json: bool) -> int:
    """List topic names."""
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        names = admin.list_topics(include_internal=internal)
    if as_json:
        echo_json(names)
    else:
        for name in names:
            click.echo(name)
    return 0


@topics.command("describe")
@click.argument("names", nargs=-1)
@bootstrap_options
@json_option
def describe(
    names: tuple[str, ...], bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Show partitions, leaders, replicas and in-sync replicas (all topics by default)."""
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        found = admin.describe_topics(names or None)
    rows = sorted(found.values(), key=lambda topic: topic.name)
    if as_json:
        echo_json([_document(topic) for topic in rows])
        return 0
    out = console()
    for topic in rows:
        out.print(_table(topic))
    return 0


@topics.command("delete")
@click.argument("names", nargs=-1, required=True)
@bootstrap_options
@json_option
def delete(
    names: tuple[str, ...], bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Delete topics with all their data."""
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        admin.delete_topics(names)
    if as_json:
        echo_json({"deleted": list(names)})
    else:
        click.echo(f"deleted {', '.join(names)}")
    return 0


@topics.command("alter")
@click.argument("name")
@click.option("--partitions", type=int, required=True, metavar="N", help="The new, larger count.")
@bootstrap_options
@json_option
def alter(
    name: str, partitions: int, bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Give a topic more partitions. Keys are spread anew: their order holds per partition only."""
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        admin.create_partitions({name: partitions})
    if as_json:
        echo_json({"topic": name, "partitions": partitions})
    else:
        click.echo(f"{name} has {partitions} partitions")
    return 0


def _copies(topic: TopicDescription) -> int:
    return max((len(p.replicas) for p in topic.partitions), default=0)


def _document(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline_replicas": list(p.offline_replicas),
            }
            for p in topic.partitions
        ],
    }


def _table(topic: TopicDescription) -> Table:
    kind = " (internal)" if topic.is_internal else ""
    headings = "partition, >leader, >epoch, replicas, in sync, "
    shown = table(f"{topic.name}{kind}  {topic.topic_id}", headings)
    for p in topic.partitions:
        shown.add_row(
            str(p.partition),
            str(p.leader) if p.leader >= 0 else "none",
            str(p.leader_epoch),
            _ids(p.replicas),
            _ids(p.isr),
            _remark(p),
        )
    return shown


def _remark(partition: PartitionDescription) -> str:
    if partition.leader < 0:
        return "[red]offline[/red]"
    if len(partition.isr) < len(partition.replicas):
        return "[yellow]under-replicated[/yellow]"
    return ""


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(str(i) for i in ids)
