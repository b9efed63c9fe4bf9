"""`headwater tier serve`: tiers every topic with remote.storage.enable=true, until it is stopped.

While there is no such topic it is a small process that asks for topics; the first one makes it
load the libraries for tables.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from types import FrameType

import click

from headwater.cli.command_config import (
    client_credentials,
    client_properties,
)
from headwater.cli.options import BOOTSTRAP_VARIABLE, bootstrap_options, bootstrap_servers
from headwater.columnar.kernel_folder import is_empty
from headwater.errors import HeadwaterError, UsageError
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.cli.catalog_options import catalog_options, catalog_settings
from headwater_tier.cli.storage_options import HELP, storage_options
from headwater_tier.kernels import KERNELS
from headwater_tier.service.options import ServiceOptions
from headwater_tier.service.service_properties import table_properties

logger = logging.getLogger(__name__)

NICE = 10
"""Brokers beside the service come first."""
LOOK_EVERY_S = 1.0
STORES = ("ssl.keystore.location", "ssl.truststore.location")
STORES_EVERY_S = 10.0
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@click.command()
@bootstrap_options
@click.option("--schema-registry", metavar="URL", help="Where schemas of confluent framing are.")
@click.option("--tables-uri", metavar="URI", help="Base folder of tables when no config has one.")
@click.option(
    "--storage-option",
    "storage",
    multiple=True,
    metavar="KEY=VALUE",
    help=HELP,
)
@click.option(
    "--tables-config",
    metavar="FILE",
    help="Properties of tables, as brokers have them: headwater.tables.uri and .option.KEY.",
)
@catalog_options
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
@click.option(
    "--metrics-config",
    metavar="FILE",
    help="Who may read them off loopback: bearer.token.file, or ssl.*; allowed.hosts.",
)
@click.option("--once", is_flag=True, help="Stop when all records committed by now are tiered.")
@click.option("--supervised", is_flag=True, hidden=True)
def serve(
    bootstrap_server: str | None,
    directory: str,
    schema_registry: str | None,
    tables_uri: str | None,
    storage: tuple[str, ...],
    tables_config: str | None,
    zookeeper: str | None,
    zookeeper_config: str | None,
    key_file: str | None,
    metrics: str | None,
    metrics_config: str | None,
    once: bool,
    supervised: bool,
) -> int:
    """Tier every topic with remote.storage.enable=true into its Delta table, each topic's
    delta.interval.ms; maintain the tables.

    Several services share the topics. SIGTERM and Ctrl-C stop it after the commits on their way.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=LOG_FORMAT, force=True)
    uri, options = table_properties(tables_config, os.environ)
    service = ServiceOptions(
        bootstrap_servers(bootstrap_server, directory),
        client_credentials(),
        tables_uri or uri,
        (*options, *storage_options(storage)),
        schema_registry or "",
        client_properties(),
        metrics or "",
        metrics_config or "",
        instance_id=f"supervised-{socket.gethostname()}" if supervised else None,
        catalog=catalog_settings(
            directory,
            zookeeper,
            zookeeper_config,
            key_file,
            by_directory=not (bootstrap_server or os.environ.get(BOOTSTRAP_VARIABLE)),
        ),
    )
    stop = stop_on_signals()
    if supervised:
        _report_ready()
        threading.Thread(target=_stop_at_eof, args=(stop,), daemon=True).start()
        files = [client_properties()[key] for key in STORES if key in client_properties()]
        threading.Thread(target=_stop_at_change, args=(stop, files), daemon=True).start()
    _be_nice()
    return run_service(service, stop, once=once)


def run_service(options: ServiceOptions, stop: threading.Event, *, once: bool) -> int:
    """Wait for a topic to tier, then tier until `stop`; the exit code."""
    if not once and is_empty():
        KERNELS.compile_aside()  # a new installation: the first topic will not wait for it
    try:
        if not _wait_for_topics(options, stop, once=once):
            return 0
        return _tier(options, stop, once=once)
    finally:
        KERNELS.close()


def _tier(options: ServiceOptions, stop: threading.Event, *, once: bool) -> int:
    # Only now, as these libraries take 150 MB.
    from headwater_tier.service.engine import build  # noqa: PLC0415

    engine = build(options, SystemClock(), SystemEntropy())
    engine.run(stop, once=once)
    failed = {name: s.error for name, s in engine.service.topics.items() if s.error}
    failed |= engine.derived.problems()
    for name, error in failed.items():
        click.echo(f"{name}: {error}", err=True)
    return 1 if once and failed else 0


def _wait_for_topics(options: ServiceOptions, stop: threading.Event, *, once: bool) -> bool:
    """True when there is a topic to tier; False after `stop`, or with `once` if there is none."""
    brokers = options.brokers()
    finder = options.finder(brokers)
    said = ""
    try:
        while not stop.is_set():
            try:
                if finder.find():
                    return True
                said = ""
                if once:
                    return False
            except UsageError:
                raise
            except (HeadwaterError, OSError) as error:
                if once:
                    raise
                if str(error) != said:
                    logger.warning("no broker answers yet: %s", error)
                said = str(error)
            stop.wait(LOOK_EVERY_S)
        return False
    finally:
        brokers.close()


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set; a second signal interrupts at once."""
    stop = threading.Event()

    def asked(_signum: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        # Not here: `set` takes a lock that the interrupted code may hold.
        threading.Thread(target=stop.set, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, asked)
    return stop


def _report_ready() -> None:
    """The line by which a supervisor knows that the process has started."""
    click.echo(json.dumps({"ready": True, "pid": os.getpid()}))
    sys.stdout.flush()


def _stop_at_eof(stop: threading.Event) -> None:
    """The supervisor closes this process's stdin to stop it, and so does its death."""
    while os.read(0, 4096):
        pass
    stop.set()


def _stop_at_change(stop: threading.Event, files: list[str]) -> None:
    """New certificates need new connections: the supervisor starts the service again at once."""
    known = _changed_at(files)
    while not stop.wait(STORES_EVERY_S):
        if _changed_at(files) != known:
            logger.info("certificates were replaced: starting again with the new ones")
            stop.set()


def _changed_at(files: list[str]) -> list[float]:
    return [os.stat(file).st_mtime if os.path.exists(file) else 0.0 for file in files]


def _be_nice() -> None:
    try:
        os.nice(NICE)
    except OSError as error:
        logger.info("the service runs at its parent's priority: %s", error)
