"""`headwater mirror`: mirrors topics from one cluster to another, and fails over between them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.cli.console_tables import console, table
from headwater.cli.mirror_tables import print_promotion, print_status
from headwater.cli.options import echo_json, json_option, within
from headwater.cli.partition_arguments import name_of
from headwater.errors import EXIT_FAILED, UsageError
from headwater.extras import install_hint
from headwater.local.private_file import write_private
from headwater.mirror.config import MirrorConfig, load_config, reversed_properties
from headwater.mirror.group_promotion import sync_groups
from headwater.mirror.opening import partition_argument
from headwater.mirror.operator import forget, resume, skip
from headwater.mirror.parts import PromotedError
from headwater.mirror.promotion import promote
from headwater.mirror.service import MirrorService
from headwater.mirror.status import mirror_positions, mirror_status
from headwater.ports.credentials import NO_CREDENTIALS
from headwater.security.client_keys import SECRETS
from headwater.security.secret import is_reference
from headwater.wire.primitives import INT64_MAX

METRICS_EXTRA = "broker"
F = TypeVar("F", bound=Callable[..., Any])


def config_option(function: F) -> F:
    """`--config FILE`; the command's parameter is `config`, parsed."""
    return click.option(
        "--config",
        "config",
        required=True,
        metavar="FILE",
        callback=lambda _ctx, _param, path: load_config(path),
        help="Properties of the mirror: source.bootstrap.servers, target.bootstrap.servers, ...",
    )(function)


@click.group()
def mirror() -> None:
    """Mirror topics from one cluster to another."""


@mirror.command()
@config_option
def run(config: MirrorConfig) -> int:
    """Mirror until it is stopped (SIGTERM, Ctrl-C) or promoted."""
    return asyncio.run(_run(config))


async def _run(config: MirrorConfig) -> int:
    service = MirrorService(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    stop = served_metrics(config, service)
    try:
        await service.run()
    except PromotedError as error:
        click.echo(f"headwater: {error}", err=True)
    finally:
        stop()
    return 0


def served_metrics(config: MirrorConfig, service: MirrorService) -> Callable[[], None]:
    """Serve the metrics if the config says so; the call that ends it. Raises UsageError."""
    if config.metrics_listen is None:
        return lambda: None
    try:
        from headwater.operations.metrics_server import (  # noqa: PLC0415 - an extra
            MetricsListener,
            serve_metrics,
        )
        from headwater.operations.mirror_metrics import MirrorCollector  # noqa: PLC0415
    except ImportError as error:
        hint = install_hint(METRICS_EXTRA)
        raise UsageError(
            f"metrics.listen needs {error.name}, which is not installed: {hint}"
        ) from None
    logins = [side.options.credentials for side in (config.source, config.target)]
    listener = MetricsListener(
        "metrics.listen",
        config.metrics_listen,
        config.metrics_config or "",
        "metrics.config",
        is_secure=any(login is not NO_CREDENTIALS for login in logins),
    )
    return serve_metrics(listener, MirrorCollector(service))


@mirror.command()
@config_option
@json_option
def status(config: MirrorConfig, as_json: bool) -> int:
    """Show how far each partition is mirrored, its lag, and what is stopped.

    Exit code 1: a partition is stopped.
    """
    found = asyncio.run(mirror_status(config))
    if as_json:
        echo_json(found.document())
    else:
        print_status(found)
    return EXIT_FAILED if any(p.stopped for p in found.partitions) else 0


@mirror.command()
@config_option
@json_option
def positions(config: MirrorConfig, as_json: bool) -> int:
    """Show the position of each partition: every record before it is in the target.

    A producer that keeps its records until the position has passed them can send the others to the
    target after a failover.
    """
    found = asyncio.run(mirror_positions(config))
    if as_json:
        echo_json(
            [
                {"topic": tp.topic, "partition": tp.partition, "position": at.next_offset}
                for tp, at in sorted(found.items())
            ]
        )
        return 0
    shown = table(None, "partition, >position")
    for tp, at in sorted(found.items()):
        shown.add_row(name_of(tp), str(at.next_offset))
    console().print(shown)
    return 0


@mirror.command("promote")
@config_option
@json_option
def promote_target(config: MirrorConfig, as_json: bool) -> int:
    """Fail over to the target: fence the mirror for good, and report what the target lacks.

    Clients may write to the target afterwards. May be repeated: the report is made anew, and is
    exact once the source can be read.
    """
    made = asyncio.run(promote(config, lambda text: click.echo(text, err=True)))
    if as_json:
        echo_json(made.document())
    else:
        print_promotion(made)
    return 0


@mirror.command("skip")
@config_option
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.option("--to", "offset", type=int, callback=within(0, INT64_MAX), required=True,
              metavar="OFFSET", help="Source offset to go on at.")  # fmt: skip
def skip_gap(config: MirrorConfig, partition: str, offset: int) -> int:
    """Accept that source offsets are lost: go on at another one.

    For a partition that stopped; `headwater mirror status` names the offset.
    """
    moved = asyncio.run(skip(config, partition_argument(partition), offset))
    click.echo(f"{name_of(moved.tp)}: from source offset {moved.before} to {moved.after}")
    return 0


@mirror.command("forget")
@config_option
@click.argument("topic")
def forget_topic(config: MirrorConfig, topic: str) -> int:
    """Begin a topic anew that was created again in the source or the target.

    The topic must be empty in the target, or absent there.
    """
    known = asyncio.run(forget(config, topic))
    click.echo(f"{topic}: forgot the positions of {len(known)} partitions")
    return 0


@mirror.command("resume")
@config_option
def resume_mirror(config: MirrorConfig) -> int:
    """Let a promoted mirror run again, after a failback.

    Stop the applications that write to the target first.
    """
    promoted_ms = asyncio.run(resume(config))
    state = "was not promoted" if promoted_ms is None else "may run again"
    click.echo(f"mirror {config.mirror_id} {state}")
    return 0


@mirror.command("sync-groups")
@config_option
def sync_groups_now(config: MirrorConfig) -> int:
    """Translate the groups' offsets now.

    A mirror that runs does so by itself every sync.group.offsets.interval.seconds, and so does
    `promote`.
    """
    asyncio.run(sync_groups(config, click.echo))
    return 0


@mirror.command()
@config_option
@click.option("--id", "mirror_id", required=True, metavar="ID", help="mirror.id of that mirror.")
@click.option("--out", metavar="FILE", help="Write it there, for its owner alone to read.")
def reverse(config: MirrorConfig, mirror_id: str, out: str | None) -> int:
    """Print the file of the mirror in the other direction, for a failback.

    It holds the secrets of this one: with secrets it is written to a file (--out), not printed.
    """
    found = reversed_properties(config, mirror_id)
    rows = []
    for name, value in found.items():
        if out is None and name.partition(".")[2] in SECRETS and not is_reference(value):
            raise UsageError(
                f"{name} holds a secret, and a redirected output would be readable by others: "
                "give --out FILE"
            )
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        rows.append(f"{name}={escaped}\n")
    if out is None:
        click.echo("".join(rows), nl=False)
        return 0
    try:
        write_private(Path(out), "".join(rows).encode())
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}: give a file in your own folder") from None
    return 0
