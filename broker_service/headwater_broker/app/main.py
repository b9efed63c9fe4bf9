"""The broker's command line: options, logging, the loop, exit codes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from headwater.config.log_files import log_files
from headwater.errors import EXIT_FAILED, EXIT_USAGE, HeadwaterError, UsageError
from headwater_broker.app.config import NodeConfig, load
from headwater_broker.app.lifecycle import announce_on_stdout, build, live
from headwater_broker.app.system_environment import system_environment
from headwater_broker.runtime import process
from headwater_broker.runtime.event_loop import MeasuredLoop
from headwater_broker.runtime.module_logs import write_apart


async def run(config: NodeConfig, announce: Callable[[dict[str, Any]], None]) -> None:
    """Run a broker until it is asked to stop. Raises UsageError when it cannot start."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()

    def stop(reason: str) -> None:
        if not stopping.done():
            stopping.set_result(reason)

    process.watch_stop(loop, stop)
    server = await build(config, await system_environment(config), stop)
    await live(server, announce, stopping)


@click.command()
@click.option("--config", "path", type=click.Path(), help="Properties file with Kafka's names.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a key, over the file."
)
@click.option("--log-level", default="INFO", show_default=True, help="Level of the log.")
def main(path: str | None, overrides: tuple[str, ...], log_level: str) -> None:
    """Run one Headwater broker until SIGTERM, or until a supervisor closes its stdin."""
    if process.is_managed():
        process.die_with_parent()
    process.ask_for_short_slices()
    process.raise_file_limit()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    lines = process.start_logging(log_level.upper())
    failure: HeadwaterError | None = None
    try:
        with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
            config = load(path, overrides)
            write_apart(lines, log_files(config.values.strings("headwater.log.files")))
            runner.run(run(config, announce_on_stdout))
    except HeadwaterError as error:
        failure = error
    finally:
        lines.stop()  # before the error is printed: a supervisor shows the last line
    sys.exit(0 if failure is None else _print_error(failure))


def _print_error(error: HeadwaterError) -> int:
    """Print the error as one line; the exit code."""
    text = str(error).replace("\n", " ")
    sys.stderr.write(f"headwater_broker: {text}\n")
    sys.stderr.flush()
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED
