"""The process that decodes and filters: hostile bytes and slow filters end here, and only here.

It has no connection but the socket to the gateway, 512 MB, a low priority, and for each record
200 ms of CPU: the kernel ends it by SIGPROF, and `at` says which record that was.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from headwater.client.values import ConsumerRecord
from headwater.errors import UsageError
from headwater_gateway.console.messages.decoding import BlobReader, DecodedBlob, exact
from headwater_gateway.console.messages.jobs import Job, Render
from headwater_gateway.console.messages.record_filter import RecordFilter, Verdict, timestamp_of
from headwater_gateway.console.messages.rows import (
    Readers,
    csv_row,
    detail_of,
    ndjson_line,
    row_of,
)
from headwater_gateway.console.processes.channel import (
    OUT_OF_MEMORY,
    AskedSchemas,
    Channel,
    settle,
)

MEMORY_BYTES_MAX = 512 * 1024 * 1024
"""On top of what the process has when it begins."""
RECORD_CPU_S_MAX = 0.2
JOBS_MAX = 64
_COUNTED = {
    Verdict.MISSING: "missing",
    Verdict.TYPE_ERROR: "type_errors",
    Verdict.TOO_LONG: "too_long",
}


def run_worker(sock: socket.socket, at: Any) -> None:
    """The life of a worker: one request after the other, until the gateway closes the socket."""
    settle(MEMORY_BYTES_MAX)
    try:
        Worker(Channel(sock), at).serve()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


class Prepared:
    """A job with its filter and decoders."""

    def __init__(self, job: Job, channel: Channel) -> None:
        """Raises UsageError for a filter that cannot work."""
        self.job = job
        self.filter = RecordFilter(job.filter) if job.filter else None
        schemas = AskedSchemas(channel)
        self.readers = Readers(
            BlobReader(schemas, job.declared_key, job.key),
            BlobReader(schemas, job.declared_value, job.value),
        )


class Worker:
    """Answers requests."""

    def __init__(self, channel: Channel, at: Any) -> None:
        """`at.value`: the index of the record in hand, for who comes after a crash."""
        self._channel = channel
        self._at = at
        self._jobs: OrderedDict[int, Prepared] = OrderedDict()

    def serve(self) -> None:
        """Until the gateway has gone."""
        while True:
            try:
                kind, number, job, records = self._channel.receive()
            except (EOFError, OSError):
                return
            self._at.value = -1
            try:
                answer = self._answer(kind, self._prepared(number, job), records)
            except UsageError as error:
                answer = {"refused": str(error)}
            self._channel.send(answer)

    def _prepared(self, number: int, job: Job | None) -> Prepared:
        found = self._jobs.get(number)
        if found is None:
            if job is None:
                raise UsageError("the scan is not known to this worker")
            found = self._jobs[number] = Prepared(job, self._channel)
            if len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
        return found

    def _answer(
        self, kind: str, prepared: Prepared, records: list[ConsumerRecord]
    ) -> dict[str, Any]:
        if kind == "detail":
            with_time = self._timed(lambda: detail_of(records[0], prepared.readers), factor=10)
            return {"detail": with_time}
        return self._judged(prepared, records)

    def _timed(self, work: Callable[[], Any], factor: int = 1) -> Any:
        signal.setitimer(signal.ITIMER_PROF, RECORD_CPU_S_MAX * factor)
        found = work()
        signal.setitimer(signal.ITIMER_PROF, 0)
        return found

    def _judged(self, prepared: Prepared, records: list[ConsumerRecord]) -> dict[str, Any]:
        chunk = Chunk(prepared)
        arm, at = signal.setitimer, self._at
        for index, record in enumerate(records):
            at.value = index
            arm(signal.ITIMER_PROF, RECORD_CPU_S_MAX)
            chunk.add(record)
        arm(signal.ITIMER_PROF, 0)
        return {"counts": chunk.counts, "rows": chunk.rows}


class Chunk:
    """Judges and renders the records of one chunk."""

    def __init__(self, prepared: Prepared) -> None:
        self._job = prepared.job
        self._filter = prepared.filter
        self._readers = prepared.readers
        names = prepared.filter.variables if prepared.filter else ()
        self._needs_key, self._needs_value = "key" in names, "value" in names
        self._plain = [(name, _PLAIN[name]) for name in names if name in _PLAIN]
        self.counts = {"scanned": 0, "matched": 0, "undecodable": 0}
        self.counts |= dict.fromkeys(_COUNTED.values(), 0)
        self.rows: list[tuple[int, int, int, str]] = []

    def add(self, record: ConsumerRecord) -> None:
        """Judge one record, and render it if it matches."""
        self.counts["scanned"] += 1
        key = value = None
        if self._filter is not None:
            key = self._readers.key.decode(record.key) if self._needs_key else None
            value = self._readers.value.decode(record.value) if self._needs_value else None
            verdict = self._verdict(self._filter, record, key, value)
            if verdict in _COUNTED:
                self.counts[_COUNTED[verdict]] += 1
            if verdict is not Verdict.MATCH:
                return
        self.counts["matched"] += 1
        self._render(record, key, value)

    def _verdict(
        self,
        judge: RecordFilter,
        record: ConsumerRecord,
        key: DecodedBlob | None,
        value: DecodedBlob | None,
    ) -> Verdict:
        variables = {name: get(record) for name, get in self._plain}
        if key is not None:
            variables["key"] = key.value
        if value is not None:
            variables["value"] = value.value
        verdict = judge.judge(variables)
        if verdict is Verdict.UNSURE:
            for name, blob, decoded in (("key", record.key, key), ("value", record.value, value)):
                if decoded is not None and blob is not None:
                    variables[name] = exact(blob, decoded)
            verdict = judge.judge(variables, is_exact=True)
        return verdict

    def _render(
        self, record: ConsumerRecord, key: DecodedBlob | None, value: DecodedBlob | None
    ) -> None:
        key = key or self._readers.key.decode(record.key)
        value = value or self._readers.value.decode(record.value)
        if value.kind == "hex":
            self.counts["undecodable"] += 1
        if self._job.render is Render.NDJSON:
            text = ndjson_line(record, key, value)
        elif self._job.render is Render.CSV:
            text = csv_row(record, key, value)
        else:
            text = json.dumps(row_of(record, key, value), separators=(",", ":"))
        self.rows.append((record.timestamp, record.partition, record.offset, text))


def _headers(record: ConsumerRecord) -> dict[str, Any]:
    """By name, the last of equal names: text where it is UTF-8, else bytes."""
    found: dict[str, Any] = {}
    for name, value in record.headers:
        if value is None:
            found[name] = None
            continue
        try:
            found[name] = value.decode("utf-8")
        except UnicodeDecodeError:
            found[name] = value
    return found


_PLAIN: dict[str, Callable[[ConsumerRecord], Any]] = {
    "headers": _headers,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: timestamp_of(record.timestamp),
    "topic": lambda record: record.topic,
}
"""The variables of a filter that need no decoding."""
