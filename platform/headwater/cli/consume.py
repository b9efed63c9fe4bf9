"""`headwater consume`: print the records of a topic."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any, TextIO, cast

import click

from headwater.cli.command_config import client_security, command_config_option
from headwater.cli.existing_topics import check_partitions, existing_topics
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    json_option,
    open_admin,
    within,
)
from headwater.client.consumer import Consumer
from headwater.client.values import ConsumerRecord, TopicPartition
from headwater.errors import UsageError
from headwater.wire.primitives import INT32_MAX, INT64_MAX

POLL_MS = 200


@click.command()
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the earliest offset.")
@click.option("--offset", type=int, callback=within(0, INT64_MAX), metavar="N",
              help="Start at this offset; needs --partition.")  # fmt: skip
@click.option("--from-timestamp", type=int, callback=within(0, INT64_MAX), metavar="MS",
              help="Start at the first record at or after this time, ms since 1970.")  # fmt: skip
@click.option("--partition", type=int, callback=within(0, INT32_MAX), metavar="N",
              help="Read this partition only.")  # fmt: skip
@click.option("--group", metavar="ID", help="Read as a member of this group, and commit offsets.")
@click.option("--max-messages", type=int, callback=within(1, INT64_MAX), metavar="N",
              help="Exit after this number of records.")  # fmt: skip
@click.option("--exit-at-end", is_flag=True, help="Exit at the end offsets of the start.")
@click.option("--key-separator", metavar="TEXT", help="Print the key, TEXT and the value.")
@click.option("--read-uncommitted", is_flag=True,
              help="Read records of open and aborted transactions too.")  # fmt: skip
@bootstrap_options
@partial(command_config_option, names=("--consumer.config", "--consumer-config"))
@json_option
def consume(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    from_timestamp: int | None,
    partition: int | None,
    group: str | None,
    max_messages: int | None,
    exit_at_end: bool,
    key_separator: str | None,
    read_uncommitted: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Print the records of TOPIC until Ctrl-C.

    It starts at the latest offset unless an option names another start. With --json it prints one
    object per line.
    """
    if cast(TextIO | None, sys.stdout) is None:
        raise UsageError("standard output is closed: records cannot be printed")
    if offset is not None and partition is None:
        raise UsageError("--offset needs --partition")
    has_start = offset is not None or from_timestamp is not None or partition is not None
    if group is not None and (has_start or exit_at_end):
        raise UsageError("--group excludes --partition, --offset, --from-timestamp, --exit-at-end")
    servers = bootstrap_servers(bootstrap_server, directory)
    with open_admin(servers, directory) as admin:  # a consumer would create the topic
        topics = existing_topics(admin, [topic])
        check_partitions(topics, [] if partition is None else [TopicPartition(topic, partition)])
    with Consumer(
        bootstrap_servers=servers,
        client_id="headwater-consume",
        group_id=group,
        auto_offset_reset="earliest" if from_beginning else "latest",
        isolation_level="read_uncommitted" if read_uncommitted else "read_committed",
        **client_security(),
    ) as consumer:
        if group is not None:
            consumer.subscribe([topic])
            ends = None
        else:
            chosen = _assign(consumer, topic, partition, offset, from_timestamp)
            ends = consumer.end_offsets(chosen) if exit_at_end else None
        _print_all(consumer, max_messages, ends, key_separator, as_json=as_json)
    return 0


def _assign(
    consumer: Consumer,
    topic: str,
    partition: int | None,
    offset: int | None,
    from_timestamp: int | None,
) -> list[TopicPartition]:
    numbers = range(consumer.partitions_for(topic)) if partition is None else [partition]
    chosen = [TopicPartition(topic, n) for n in numbers]
    consumer.assign(chosen)
    if offset is not None:
        consumer.seek(chosen[0], offset)
    if from_timestamp is not None:
        found = consumer.offsets_for_times(dict.fromkeys(chosen, from_timestamp))
        for tp, row in found.items():
            if row is None:
                consumer.seek_to_end(tp)
            else:
                consumer.seek(tp, row.offset)
    return chosen


def _print_all(
    consumer: Consumer,
    max_messages: int | None,
    ends: dict[TopicPartition, int] | None,
    key_separator: str | None,
    *,
    as_json: bool,
) -> None:
    out = sys.stdout.buffer
    count = 0
    while ends is None or any(consumer.position(tp) < end for tp, end in ends.items()):
        limit = None if max_messages is None else min(500, max_messages - count)
        for tp, records in consumer.poll(POLL_MS, limit).items():
            for record in records:
                if ends is None or record.offset < ends[tp]:
                    out.write(_line(record, key_separator, as_json=as_json))
                    count += 1
        out.flush()
        if max_messages is not None and count >= max_messages:
            return


def _line(record: ConsumerRecord, key_separator: str | None, *, as_json: bool) -> bytes:
    if as_json:
        return json.dumps(_document(record), ensure_ascii=False).encode() + b"\n"
    value = b"null" if record.value is None else record.value
    if key_separator is None:
        return value + b"\n"
    key = b"null" if record.key is None else record.key
    return key + key_separator.encode() + value + b"\n"


def _document(record: ConsumerRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": k, "value": _text(v)} for k, v in record.headers],
    }


def _text(blob: bytes | None) -> str | None:
    """UTF-8 text; other bytes as hexadecimal escapes."""
    return None if blob is None else blob.decode(errors="backslashreplace")
