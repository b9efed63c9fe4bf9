"""`headwater produce`: send values or the lines of standard input to a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TextIO, cast

import click

from headwater.cli.command_config import client_security, command_config_option
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    echo_json,
    json_option,
    within,
)
from headwater.cli.wait_report import Wait, watching
from headwater.client.futures import SendFuture
from headwater.client.producer import Producer
from headwater.client.producer_options import Acks, CompressionType
from headwater.client.record_sending import TIMESTAMP_MAX
from headwater.client.values import RecordMetadata
from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater.wire.primitives import INT32_MAX

TIMEOUT_MS = 120_000
LATEST_FUTURES = 1
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("--key", metavar="KEY", help="Key of every record.")
@click.option("--key-separator", metavar="TEXT",
              help="Split each line into key and value at the first TEXT.")  # fmt: skip
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE",
              help="Header of every record. May be repeated.")  # fmt: skip
@click.option("--partition", type=int, callback=within(0, INT32_MAX), metavar="N",
              help="Send to this partition.")  # fmt: skip
@click.option("--timestamp", type=int, callback=within(0, TIMESTAMP_MAX), metavar="MS",
              help="Timestamp of every record, in ms since 1970. [default: now]")  # fmt: skip
@click.option("--compression", "--compression-codec", type=click.Choice(COMPRESSIONS),
              default="none", show_default=True, help="Compression of the batches.")  # fmt: skip
@click.option("--acks", "--producer-acks", type=click.Choice(("all", "1", "0")), default="all",
              show_default=True, help="Replicas that must have a record: all in-sync replicas, the "
              "leader (1), or none (0).")  # fmt: skip
@click.option("--timeout", "timeout_ms", type=int, callback=within(1, INT32_MAX),
              default=TIMEOUT_MS, show_default=True, metavar="MS",
              help="Time limit of a record's delivery, with retries, in ms.")  # fmt: skip
@bootstrap_options
@partial(command_config_option, names=("--producer.config", "--producer-config"))
@json_option
def produce(
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: int | None,
    compression: CompressionType,
    acks: Acks,
    timeout_ms: int,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Send VALUES or the lines of standard input to TOPIC.

    It prints the number of records that were acknowledged. While records cannot be delivered, it
    shows the reason on stderr.
    """
    if key_separator == "":
        raise UsageError("--key-separator is empty: give the text between key and value, as in :")
    if key is not None and key_separator is not None:
        raise UsageError("--key and --key-separator exclude each other")
    pairs = [_header(h) for h in headers]
    lines = [v.encode() for v in values] if values else _stdin_lines()
    servers = bootstrap_servers(bootstrap_server, directory)
    delivery = Delivery(servers)
    with (
        watching(delivery.current_wait, SystemClock()),
        Producer(
            servers,
            client_id="headwater-produce",
            compression_type=compression,
            acks=acks,
            delivery_timeout_ms=timeout_ms,
            **client_security(),
        ) as producer,
    ):
        delivery.is_connected = True
        for line_key, value in _split(lines, key, key_separator):
            delivery.add(
                producer.send(
                    topic, value, line_key, headers=pairs, timestamp=timestamp, partition=partition
                )
            )
        producer.flush()
        last = delivery.last()
    if as_json:
        place = None if last is None else last._asdict()
        echo_json({"topic": topic, "records": delivery.count, "last": place})
    else:
        where = f", the last at {last.partition}:{last.offset}" if last is not None else ""
        records = "1 record" if delivery.count == 1 else f"{delivery.count} records"
        click.echo(f"{records} to {topic}{where}", err=True)
    return 0


class Delivery:
    """The futures of the records that were sent. Another thread may call `current_wait`."""

    def __init__(self, servers: str) -> None:
        self.count = 0
        self.is_connected = False
        self._servers = servers
        self._futures: list[SendFuture] = []
        """From the oldest record without an acknowledgement on, and at least the last record."""

    def add(self, future: SendFuture) -> None:
        """A record was sent. Raises the error of an earlier one."""
        self.count += 1
        self._futures.append(future)
        if self._futures[0].done():
            self._futures = _unfinished(self._futures)

    def last(self) -> RecordMetadata | None:
        """The metadata of the last record, once all are done. Raises the error of a failed one."""
        found = None
        for future in self._futures:
            found = future.result()
        return found

    def current_wait(self) -> Wait | None:
        """What the command waits for now."""
        if not self.is_connected:
            return Wait("connect", f"no answer from {self._servers}")
        futures = self._futures.copy()
        if not futures:
            return None
        oldest = futures[0]
        if oldest.done():
            return None
        waiting = sum(not future.done() for future in futures)
        return Wait(id(oldest), f"no acknowledgement for {waiting} of {self.count} records")


def _unfinished(futures: list[SendFuture]) -> list[SendFuture]:
    """The futures that are not done, or else the last one. Raises the error of one that failed."""
    rest = []
    for future in futures:
        if future.done():
            future.result()
        else:
            rest.append(future)
    return rest or futures[-LATEST_FUTURES:]


def _stdin_lines() -> Iterator[bytes]:
    if cast(TextIO | None, sys.stdin) is None:
        raise UsageError("standard input is closed: give VALUES, or lines with < FILE")
    return (line.rstrip(b"\r\n") for line in sys.stdin.buffer)


def _split(
    lines: Iterable[bytes], key: str | None, separator: str | None
) -> Iterator[tuple[bytes | None, bytes]]:
    if separator is None:
        fixed = None if key is None else key.encode()
        for line in lines:
            yield fixed, line
        return
    for number, line in enumerate(lines, 1):
        found, mark, value = line.partition(separator.encode())
        if not mark:
            raise UsageError(f"line {number} holds no key separator {separator!r}")
        yield found, value


def _header(text: str) -> tuple[str, bytes]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise UsageError(f"--header {text!r} is not KEY=VALUE")
    return name, value.encode()
