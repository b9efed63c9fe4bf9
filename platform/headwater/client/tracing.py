"""`Tracing`: OpenTelemetry traces through record headers. The one adapter of opentelemetry.

    tracing = Tracing()
    producer = Producer("127.0.0.1:9092", interceptors=[tracing])

Off unless it is given. A record carries the context of the span that sent it, as `traceparent`;
what reads it links to that span. Needs the extra `otel`; without an SDK of OpenTelemetry nothing is
recorded and no header is added. Names are those of its conventions for messaging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from headwater import __version__
from headwater.client.interceptors import Interceptor, SendRecord
from headwater.client.values import ConsumerRecord, RecordMetadata

LINKS_MAX = 128
"""Of one span: the default limit of OpenTelemetry's SDK, which drops the rest."""
_TRACEPARENT = "traceparent"


class ReadRecord(Protocol):
    """A record as consumed: a ConsumerRecord or a TypedRecord."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def partition(self) -> int:
        """Its partition."""
        ...

    @property
    def offset(self) -> int:
        """Its offset."""
        ...

    @property
    def headers(self) -> Any:
        """(name, value) pairs."""
        ...


class Tracing(Interceptor):
    """A span for each record that is sent, one for each poll of a partition, and `process` for what
    the program does with a record."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """`tracer_provider`: by default OpenTelemetry's global one."""
        self._tracer = trace.get_tracer("headwater", __version__, tracer_provider)
        self._open: dict[bytes, Span] = {}
        """By traceparent: spans of records that are neither acknowledged nor failed."""

    def on_send(self, record: SendRecord) -> SendRecord:
        """Begin the record's span, and add its context to the headers."""
        span = self._tracer.start_span(
            f"send {record.topic}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("send", "send", record.topic),
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        if _TRACEPARENT not in carrier:
            return record
        rows = tuple((name, text.encode()) for name, text in carrier.items())
        kept = tuple(row for row in record.headers if row[0] not in carrier)
        self._open[carrier[_TRACEPARENT].encode()] = span
        return record._replace(headers=(*kept, *rows))

    def on_delivery(
        self, record: SendRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        """End the record's span."""
        context = dict(record.headers).get(_TRACEPARENT)
        span = None if context is None else self._open.pop(context, None)
        if span is None:
            return
        if metadata is not None:
            span.set_attribute("messaging.destination.partition.id", str(metadata.partition))
            span.set_attribute("messaging.kafka.offset", metadata.offset)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, str(error)))
            span.set_attribute("error.type", type(error).__name__)
        span.end()

    def on_records(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """A span of the poll, with a link to each record's sender."""
        if records:
            first = records[0]
            links = [link for row in records[:LINKS_MAX] if (link := _link(row)) is not None]
            attributes = {
                **_attributes("receive", "poll", first.topic),
                "messaging.destination.partition.id": str(first.partition),
                "messaging.batch.message_count": len(records),
            }
            name = f"poll {first.topic}"
            kind = SpanKind.CLIENT
            self._tracer.start_span(name, kind=kind, attributes=attributes, links=links).end()
        return records

    @contextmanager
    def process(self, record: ReadRecord) -> Iterator[Span]:
        """`with tracing.process(record):` a span of what is done with it, linked to its sender."""
        link = _link(record)
        attributes = {
            **_attributes("process", "process", record.topic),
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
        }
        with self._tracer.start_as_current_span(
            f"process {record.topic}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[] if link is None else [link],
        ) as span:
            yield span


def _attributes(kind: str, name: str, topic: str) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
        "messaging.destination.name": topic,
    }


def _link(record: ReadRecord) -> Link | None:
    """To the span whose context the headers carry; None without one."""
    carrier: Mapping[str, str] = {
        name: value.decode(errors="replace") for name, value in record.headers if value is not None
    }
    context = trace.get_current_span(propagate.extract(carrier)).get_span_context()
    return Link(context) if _TRACEPARENT in carrier and context.is_valid else None
