"""`headwater lag-exporter`: kafka_exporter's metrics of any Kafka cluster, for Prometheus."""

from __future__ import annotations

import signal
import threading

import click

from headwater.cli.command_config import client_credentials
from headwater.cli.options import bootstrap_options, open_admin, timeout_option
from headwater.errors import UsageError
from headwater.extras import install_hint
from headwater.ports.credentials import NO_CREDENTIALS
from headwater.system import SystemClock


@click.command("lag-exporter")
@click.option(
    "--listen",
    default="127.0.0.1:9308",
    show_default=True,
    metavar="HOST:PORT",
    help="Serve http://HOST:PORT/metrics there.",
)
@click.option(
    "--metrics-config",
    metavar="FILE",
    help="Who may read them off loopback: bearer.token.file, or ssl.*; allowed.hosts.",
)
@click.option(
    "--topics", default=".*", show_default=True, metavar="REGEX", help="Only these topics."
)
@click.option(
    "--groups", default=".*", show_default=True, metavar="REGEX", help="Only these groups."
)
@timeout_option
@bootstrap_options
def lag_exporter(
    listen: str,
    metrics_config: str | None,
    topics: str,
    groups: str,
    bootstrap_server: str | None,
    directory: str,
    timeout_ms: int,
) -> int:
    """Serve the offsets and lags of a cluster for Prometheus, under kafka_exporter's names.

    Each scrape asks the brokers. It works with Apache Kafka too; brokers of Headwater also export
    headwater_group_lag themselves. It ends on SIGTERM and Ctrl-C.
    """
    try:
        from headwater.operations.lag_exporter.collector import LagCollector  # noqa: PLC0415
        from headwater.operations.metrics_server import (  # noqa: PLC0415
            MetricsListener,
            serve_metrics,
        )
    except ImportError as error:
        raise UsageError(f"{error}: {install_hint('broker')}") from None
    from headwater.operations.lag_exporter.facts import Wanted, read_facts  # noqa: PLC0415

    wanted = Wanted.parse(topics, groups)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with open_admin(bootstrap_server, directory, timeout_ms) as admin:
        collector = LagCollector(lambda: read_facts(admin, wanted), SystemClock())
        is_secure = client_credentials() is not NO_CREDENTIALS
        listener = MetricsListener(
            "--listen", listen, metrics_config or "", "--metrics-config", is_secure=is_secure
        )
        stop = serve_metrics(listener, collector)
        click.echo(f"headwater: lags at http://{listen}/metrics")
        try:
            ended.wait()
        finally:
            stop()
    return 0
