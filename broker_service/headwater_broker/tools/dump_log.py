"""`headwater dump-log FILE...`: the content of a broker's files, one line per entry.

It only reads the files, so it may run beside a broker, whose newest index entries may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from headwater.errors import HeadwaterError, UsageError
from headwater.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    BatchHeader,
    compute_crc,
    read_header,
)
from headwater.records.control import control_type
from headwater.records.record import Record, decode_batch
from headwater.topic_names import TRANSACTION_TOPIC
from headwater_broker.log.checkpoint_files import (
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    decode_tells_gaps,
)
from headwater_broker.log.index import OFFSET_ENTRY, TIME_ENTRY
from headwater_broker.log.log_segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from headwater_broker.log.producer_snapshot_format import decode_snapshot
from headwater_broker.log.transaction_index import ENTRY as ABORTED_ENTRY
from headwater_broker.log.transaction_index import decode_aborted
from headwater_broker.tools.transaction_rows import decoded

Row = dict[str, Any]
Decode = Callable[[bytes, bytes | None], Row]

INDEXES = (".index", ".timeindex")
SUFFIXES = (".log", *INDEXES, ".txnindex", ".snapshot")
NAMES = (LEADER_EPOCHS, PARTITION_METADATA, META_PROPERTIES)
OFFSETS = "-offset-checkpoint"
ASIDE = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
"""Ends of names of files that wait for their removal, or that the cleaner writes."""


@click.command("dump-log")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--records",
    "with_records",
    is_flag=True,
    help="Print the records of batches too; of __transaction_state in plain words.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def dump_log(files: tuple[Path, ...], with_records: bool, as_json: bool) -> None:
    """Print segments, indexes, snapshots and checkpoints; exit code 1 when one is damaged."""
    damaged = False
    for path in files:
        _check(path)
    for path in files:
        if not as_json:
            click.echo(f"Dumping {path}")
        for row in rows_of(path, with_records=with_records):
            damaged = damaged or "damage" in row
            click.echo(json.dumps({"file": str(path), **row}) if as_json else _line(row))
    if damaged:
        raise SystemExit(1)


def _check(path: Path) -> None:
    """Raises UsageError for a path that this command does not read."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name files in it, such as {path}/*.log")
    if not path.is_file():
        raise UsageError(f"{path}: no such file; name files such as t-0/{0:020d}.log")
    name = _plain_path(path)
    known = name.suffix in SUFFIXES or name.name in NAMES or name.name.endswith(OFFSETS)
    if not known:
        raise UsageError(f"{path}: not a file of a log; known are .log, indexes, checkpoints")
    if name.suffix in INDEXES and not (name.stem.isascii() and name.stem.isdigit()):
        raise UsageError(f"{path}: an index is named by its first offset, as in {0:020d}.index")


def _plain_path(path: Path) -> Path:
    """The file's name without DELETED_SUFFIX, CLEANED_SUFFIX and SWAP_SUFFIX."""
    return path.with_suffix("") if path.suffix in ASIDE else path


def rows_of(path: Path, *, with_records: bool = False) -> Iterator[Row]:
    """The entries of one file, whose name decides on its format. Damage is a row with the key
    `damage`."""
    try:
        if _plain_path(path).suffix == ".log":
            yield from _batches(path, with_records=with_records)
        else:
            yield from _small_file(path)
    except HeadwaterError as e:
        yield {"damage": str(e)}
    except OSError as e:  # a running broker may have removed it: the other files are shown
        yield {"damage": f"not readable: {e.strerror or repr(e)}"}


def _line(row: Row) -> str:
    return " ".join(f"{name}: {value}" for name, value in row.items())


def _batches(path: Path, *, with_records: bool) -> Iterator[Row]:
    size, position, last = path.stat().st_size, 0, -1
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            head = file.read(HEADER_BYTES)
            header = read_header(head) if len(head) == HEADER_BYTES else None
            if header is None or header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                yield {"position": position, "damage": f"no batch header; {size - position} left"}
                return
            if position + header.size_bytes > size:
                yield {"position": position, "damage": f"batch of {header.size_bytes} cut off"}
                return
            data = memoryview(head + file.read(header.size_bytes - HEADER_BYTES))
            fault = _fault(header, data)
            if not fault:
                if header.base_offset <= last:  # the CRC does not cover it
                    fault = f"offsets do not rise: {last} was before it"
                last = header.last_offset
            yield _batch(position, header, fault)
            if with_records and not fault:
                is_coordinators = path.absolute().parent.name.startswith(f"{TRANSACTION_TOPIC}-")
                yield from _records(position, header, data, decoded if is_coordinators else None)
            position += header.size_bytes


def _fault(header: BatchHeader, data: memoryview) -> str:
    if header.magic != MAGIC_V2:
        return f"magic {header.magic}"
    is_whole = compute_crc(data, 0, header.size_bytes) == header.crc
    return "" if is_whole else "the CRC does not match"


def _batch(position: int, header: BatchHeader, fault: str) -> Row:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        "maxTimestamp": header.max_timestamp,
        "size": header.size_bytes,
        "magic": header.magic,
        "compression": header.compression,
        **({"damage": fault} if fault else {}),
    }


def _records(
    position: int, header: BatchHeader, data: memoryview, decode: Decode | None
) -> Iterator[Row]:
    try:
        yield from [_record(header, record, decode) for record in decode_batch(data, 0, header)]
    except HeadwaterError as e:  # later batches are still shown
        yield {"position": position, "damage": str(e)}


def _record(header: BatchHeader, record: Record, decode: Decode | None) -> Row:
    shown: Row = {"offset": record.offset, "timestamp": record.timestamp}
    if header.is_control:
        shown["marker"] = control_type(record.key).name
    elif decode is not None and record.key is not None:
        shown.update(decode(record.key, record.value))
    else:
        shown["key"], shown["value"] = _text(record.key), _text(record.value)
        shown["headers"] = [[name, _text(value)] for name, value in record.headers]
    return shown


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _small_file(path: Path) -> Iterator[Row]:
    data, plain = path.read_bytes(), _plain_path(path)
    name = plain.name
    if plain.suffix in INDEXES:
        yield from _index(data, int(plain.stem), is_time=plain.suffix == ".timeindex")
    elif plain.suffix == ".txnindex":
        yield from (entry._asdict() for entry in decode_aborted(data))
        yield from _cut_off(data, ABORTED_ENTRY.size)
    elif plain.suffix == ".snapshot":
        for entry in decode_snapshot(data):
            yield {
                "producerId": entry.producer_id,
                "producerEpoch": entry.epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "currentTxnFirstOffset": entry.transaction_first_offset,
                "lastTimestamp": entry.last_timestamp,
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
            }
    elif name == LEADER_EPOCHS:
        yield from ({"epoch": epoch, "startOffset": s} for epoch, s in decode_epochs(data))
    elif name.endswith(OFFSETS):
        for (topic, partition), offset in decode_offsets(data).items():
            yield {"topic": topic, "partition": partition, "offset": offset}
    elif name == PARTITION_METADATA:
        yield {
            "topicId": str(decode_partition_metadata(data)),
            "tellsGaps": decode_tells_gaps(data),
        }
    else:  # META_PROPERTIES: `_check` lets no other file pass
        yield dict(decode_properties(data)) or {"damage": "there are no properties"}


def _index(data: bytes, base: int, *, is_time: bool) -> Iterator[Row]:
    entry = TIME_ENTRY if is_time else OFFSET_ENTRY
    whole, last = len(data) // entry.size * entry.size, (-1, -1)
    # As the broker checks them: in a time index only the timestamps must rise.
    for pair in entry.iter_unpack(data[:whole]):
        first, second = pair
        row: Row = (
            {"timestamp": first, "offset": base + second}
            if is_time
            else {"offset": base + first, "position": second}
        )
        if first <= last[0] or second <= (-1 if is_time else last[1]):
            row["damage"] = "entries do not rise"
        last = pair
        yield row
    yield from _cut_off(data, entry.size)


def _cut_off(data: bytes, entry_bytes: int) -> Iterator[Row]:
    if left := len(data) % entry_bytes:
        yield {"damage": f"{left} bytes after the last whole entry"}
