"""`headwater topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import existing_topics, nearest_suggested, suggestion
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.cli.partition_arguments import parse_assignment
from headwater.cli.partition_filters import FILTERS, Adding, adding_replicas
from headwater.cli.settings import parse_settings
from headwater.client.values import ConfigEntry, NewTopic, PartitionDescription, TopicDescription
from headwater.errors import EXIT_FAILED, ErrorCode, KafkaError, UsageError
from headwater.ids import id_text
from headwater.wire.primitives import INT16_MAX, INT32_MAX

MIN_ISR = "min.insync.replicas"
GROWTH_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or"
    " ordering of the messages will be affected"
)
"""Word for word that of Kafka's tool, on stderr: scripts read stdout."""
DEFAULT = -1  # in CreateTopics: the broker's default


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command("create")
@click.argument("name")
@click.option("--partitions", type=int, metavar="N",
              help="Number of partitions. [default: num.partitions of the brokers]")  # fmt: skip
@click.option("--replication-factor", type=int, metavar="N",
              help="Replicas per partition. [default: default.replication.factor]")  # fmt: skip
@click.option("--replica-assignment", metavar="1:2,2:3",
              help="Replicas of each partition, instead of the two numbers.")  # fmt: skip
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE",
              help="Configuration of the topic. May be repeated.")  # fmt: skip
@click.option("--validate-only", is_flag=True, help="Check the topic, do not create it.")
@click.option("--if-not-exists", is_flag=True, help="Exit with 0 when the topic exists.")
@bootstrap_options
@json_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    settings: tuple[str, ...],
    validate_only: bool,
    if_not_exists: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Create the topic NAME."""
    _check_count("--partitions", partitions, INT32_MAX)
    _check_count("--replication-factor", replication_factor, INT16_MAX)
    assignments = None
    if replica_assignment is not None:
        if (partitions, replication_factor) != (None, None):
            raise UsageError("--replica-assignment excludes --partitions and --replication-factor")
        rows = parse_assignment(replica_assignment, "--replica-assignment")
        assignments = dict(enumerate(rows))
    configs = parse_settings(settings, "--config")
    created = True
    count, factor = (DEFAULT if n is None else n for n in (partitions, replication_factor))
    new = NewTopic(name, count, factor, configs, assignments)
    with open_admin(bootstrap_server, directory) as admin:
        try:
            admin.create_topics([new], validate_only=validate_only)
        except KafkaError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            created = False
        if validate_only:
            return _could_create(name, possible=created, as_json=as_json)
        described = admin.describe_topics([name])[name]
    if as_json:
        echo_json({"created": created, **_document(described)})
    else:
        count = len(described.partitions)
        verb = "created" if created else "exists:"
        click.echo(
            f"{verb} {name}: {count} partitions, {_replication_factor(described)} replicas each"
        )
    return 0


def _check_count(option: str, value: int | None, most: int) -> None:
    """Raise UsageError for a number that the protocol has no room for."""
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{option} {value}: give 1 or more, up to {most}")


def _could_create(name: str, *, possible: bool, as_json: bool) -> int:
    if as_json:
        echo_json({"topic": name, "possible": possible, "validate_only": True})
    else:
        click.echo(f"{name} could be created" if possible else f"{name} exists")
    return 0


@topics.command("list")
@click.option("--internal", is_flag=True, help="List internal topics too.")
@bootstrap_options
@json_option
def list_topics(internal: bool, bootstrap_server: str | None, directory: str, as_json: bool) -> int:
    """List the names of the topics."""
    with open_admin(bootstrap_server, directory) as admin:
        names = admin.list_topics(include_internal=internal)
    if as_json:
        echo_json(names)
    else:
        for name in names:
            click.echo(name)
    return 0


@topics.command("describe")
@click.argument("names", nargs=-1)
@click.option("--under-replicated", "--under-replicated-partitions", "under_replicated",
              is_flag=True, help="Only partitions with a replica out of sync.")  # fmt: skip
@click.option("--unavailable", "--unavailable-partitions", "unavailable",
              is_flag=True, help="Only partitions without a live leader.")  # fmt: skip
@click.option("--under-min-isr", "--under-min-isr-partitions", "under_min_isr",
              is_flag=True,
              help="Only partitions with fewer than min.insync.replicas in sync.")  # fmt: skip
@click.option("--at-min-isr", "--at-min-isr-partitions", "at_min_isr",
              is_flag=True,
              help="Only partitions with exactly min.insync.replicas in sync.")  # fmt: skip
@click.option("--with-overrides", "--topics-with-overrides", "with_overrides",
              is_flag=True, help="Only topics with a configuration of their own.")  # fmt: skip
@bootstrap_options
@json_option
def describe(
    names: tuple[str, ...],
    with_overrides: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
    **filters: bool,
) -> int:
    """Show partitions, leaders and in-sync replicas of topics.

    Without NAMES it shows all topics.
    """
    given = [name for name, is_given in filters.items() if is_given]
    if len(given) + with_overrides > 1:
        known = ", ".join(f"--{name.replace('_', '-')}" for name in (*filters, "with_overrides"))
        raise UsageError(f"give one of {known}")
    with open_admin(bootstrap_server, directory) as admin:
        found = existing_topics(admin, names) if names else admin.describe_topics()
        rows = sorted(found.values(), key=lambda topic: topic.name)
        configs = {topic.name: admin.describe_configs("topic", topic.name) for topic in rows}
        adding = adding_replicas(admin, rows)
    overrides = {name: _overrides(entries) for name, entries in configs.items()}
    if with_overrides:
        rows = [topic for topic in rows if overrides[topic.name]]
    for name in given:
        wanted = FILTERS[name]
        rows = [t._replace(partitions=tuple(
            p for p in t.partitions
            if wanted(p, adding.get((t.name, p.partition), 0), _min_isr(configs[t.name]))
        )) for t in rows]  # fmt: skip
        rows = [topic for topic in rows if topic.partitions]
    if as_json:
        echo_json([{**_document(t), "configs": overrides[t.name]} for t in rows])
        return 0
    out = console()
    for topic in rows:
        out.print(_table(topic, overrides[topic.name], adding))
    return 0


def _overrides(entries: Mapping[str, ConfigEntry]) -> dict[str, str | None]:
    """The keys that are set on the topic itself."""
    return {k: e.value for k, e in sorted(entries.items()) if e.source == "DYNAMIC_TOPIC_CONFIG"}


def _min_isr(entries: Mapping[str, ConfigEntry]) -> int:
    return int(entries[MIN_ISR].value or 1)


@topics.command("delete")
@click.argument("names", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Ignore topics that do not exist.")
@bootstrap_options
@json_option
def delete(
    names: tuple[str, ...],
    if_exists: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Delete topics with their records. The Delta tables of the topics stay."""
    with open_admin(bootstrap_server, directory) as admin:
        known = admin.list_topics(include_internal=True)
        outcomes = admin.try_delete_topics(names)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    deleted = [name for name, error in outcomes.items() if error is None]
    failed = {name: error for name, error in outcomes.items()
              if error and not (if_exists and error.code is unknown)}  # fmt: skip
    if as_json:
        rows = [{"topic": name, "error": e.code.name, "message": e.detail}
                for name, e in failed.items()]  # fmt: skip
        echo_json({"deleted": deleted, "failed": rows})
        return EXIT_FAILED if failed else 0
    if deleted or not failed:
        click.echo(f"deleted {', '.join(deleted)}" if deleted else "nothing to delete")
    for name, error in failed.items():
        hint = ""
        if error.code is unknown:
            near = suggestion([name], known)
            hint = f"; {near or '--if-exists ignores topics that do not exist'}"
        click.echo(f"{name}: not deleted: {error}{hint}", err=True)
    return EXIT_FAILED if failed else 0


@topics.command("alter")
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, INT32_MAX), required=True, metavar="N",
              help="New number of partitions, larger than before.")  # fmt: skip
@click.option("--replica-assignment", metavar="2:3,3:1",
              help="Replicas of each new partition.")  # fmt: skip
@click.option("--validate-only", is_flag=True, help="Check the change, do not make it.")
@bootstrap_options
@json_option
def alter(
    name: str,
    partitions: int,
    replica_assignment: str | None,
    validate_only: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Add partitions to the topic NAME. Records of one key may then go to another partition than
    before, so their order across the change is lost."""
    assignments = None
    if replica_assignment is not None:
        assignments = {name: parse_assignment(replica_assignment, "--replica-assignment")}
    with open_admin(bootstrap_server, directory) as admin, nearest_suggested(admin, [name]):
        admin.create_partitions(
            {name: partitions}, assignments=assignments, validate_only=validate_only
        )
    click.echo(GROWTH_WARNING, err=True)
    if as_json:
        echo_json({"topic": name, "partitions": partitions, "validate_only": validate_only})
    else:
        click.echo(f"{name} {'could have' if validate_only else 'has'} {partitions} partitions")
    return 0


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(p.replicas) for p in topic.partitions), default=0)


def _document(topic: TopicDescription) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": id_text(topic.topic_id),
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


def _table(topic: TopicDescription, overrides: Mapping[str, str | None], adding: Adding) -> Table:
    kind = " (internal)" if topic.is_internal else ""
    headings = "partition, >leader, >epoch, replicas, in sync, "
    configs = "".join(f"  {key}={value}" for key, value in overrides.items())
    shown = table(f"{topic.name}{kind}  {id_text(topic.topic_id)}{configs}", headings)
    for p in topic.partitions:
        shown.add_row(
            str(p.partition),
            str(p.leader) if p.leader >= 0 else "none",
            str(p.leader_epoch),
            _ids(p.replicas),
            _ids(p.isr),
            _remark(p, adding.get((topic.name, p.partition), 0)),
        )
    return shown


def _remark(partition: PartitionDescription, adding: int) -> Text:
    if partition.leader < 0:
        return Text("offline", "red")
    if FILTERS["under_replicated"](partition, adding, 0):
        return Text("under-replicated", "yellow")
    return Text("")


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(str(i) for i in ids)
