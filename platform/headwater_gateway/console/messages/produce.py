"""Produce a record, and send an existing one again: a form, a plan, a confirmation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.client.values import ConsumerRecord, Headers
from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.messages.browser import Browser, Viewer
from headwater_gateway.console.messages.produced_fields import (
    NEW_RECORD,
    NewRecord,
    as_fields,
    new_record,
)
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell

EDITABLE_BYTES_MAX = 64 * 1024
"""A larger record is sent again as it is."""
SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands."""

    partition: int
    offset: int


class ProducePages:
    """The form, and what it does."""

    def __init__(self, shell: Shell, browser: Callable[[], Browser]) -> None:
        """`browser`: a function that gives the Browser of a running console."""
        self._shell = shell
        self._browser = browser

    def routes(self) -> list[BaseRoute]:
        """The routes; none with `--read-only`."""
        if self._shell.read_only:
            return []
        root = "/topics/{topic}/produce"
        return [self._shell.view(root, self.show), *self._shell.write(root, self.plan)]

    async def show(self, request: Request) -> Response:
        """The form: empty, or filled with an existing record."""
        viewer, browser = self._viewer(request), self._browser()
        partitions = await browser.partitions(viewer)
        place = _place(request.query_params.get("resend", ""))
        original = None if place is None else await _read(browser, viewer, place)
        too_large = original is not None and _size(original) > EDITABLE_BYTES_MAX
        fields = NEW_RECORD if original is None or too_large else as_fields(original)
        return self._shell.page(
            request,
            "messages/produce.html",
            topic=viewer.topic,
            partitions=len(partitions),
            place=place,
            size=0 if original is None else _size(original),
            too_large=too_large,
            fields=fields,
        )

    async def plan(self, request: Request, given: Mapping[str, str]) -> Plan:
        """What would be sent."""
        viewer, browser = self._viewer(request), self._browser()
        fields = Fields(given)
        target = fields.optional("target") or viewer.topic
        place = _place(given.get("resend", ""))
        if fields.flag("as_it_is") and place is not None:
            record = _as_it_is(await _read(browser, viewer, place), fields)
        else:
            record = new_record(given)
        at = Viewer(viewer.login, viewer.clients, target)
        partitions = await browser.partitions(at)
        if record.partition is not None and record.partition not in partitions:
            raise UsageError(
                f"partition is {record.partition}: topic {target} has 0 to {len(partitions) - 1}"
            )
        return _plan(at, record, len(partitions), place)

    def _viewer(self, request: Request) -> Viewer:
        clients = self._shell.clients(request)
        return Viewer(request.state.login, clients, request.path_params["topic"])


def _plan(viewer: Viewer, record: NewRecord, partitions: int, place: Place | None) -> Plan:
    async def apply(_secrets: Mapping[str, str]) -> str:
        producer = await viewer.clients.producer()
        delivery = await producer.send(
            viewer.topic,
            record.value,
            key=record.key,
            headers=record.headers,
            partition=record.partition,
        )
        written = await delivery
        return f"The record is in {viewer.topic}-{written.partition} at offset {written.offset}."

    by_key = "by the hash of its key" if record.key is not None else "any"
    changes = [
        Change("partition", None, by_key if record.partition is None else str(record.partition)),
        Change("key", None, _shown(record.key)),
        Change("value", None, _shown(record.value)),
        *(Change(f"header {name}", None, _shown(value)) for name, value in record.headers),
    ]
    verb = "Produce a record to" if place is None else "Send a record again to"
    return Plan(
        title=f"{verb} {viewer.topic}",
        changes=tuple(changes),
        state={"partitions": partitions},
        apply=apply,
        back=address("topics", viewer.topic, "messages"),
        warnings=("Whoever reads the topic will read it: a log has no undo.",),
    )


def _as_it_is(original: ConsumerRecord, fields: Fields) -> NewRecord:
    partition = fields.optional("partition")
    number = None if partition is None else fields.number("partition", most=2**31 - 1)
    headers: Headers = list(original.headers)
    return NewRecord(original.key, original.value, headers, number)


async def _read(browser: Browser, viewer: Viewer, place: Place) -> ConsumerRecord:
    return await browser.record(viewer, place.partition, place.offset)


def _place(text: str) -> Place | None:
    """`3:120`: a partition and an offset; None for nothing."""
    if not text:
        return None
    partition, _, offset = text.partition(":")
    fields = Fields({"partition": partition, "offset": offset})
    return Place(fields.number("partition", most=2**31 - 1), fields.number("offset"))


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _shown(blob: bytes | None) -> str:
    """The beginning of a key or value, and its size."""
    if blob is None:
        return "null"
    head = blob[:SHOWN_BYTES]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = len(blob) > SHOWN_BYTES and error.start > SHOWN_BYTES - 4
        text = head[: error.start].decode("utf-8") if is_cut else head.hex(" ")
    more = "" if len(blob) <= SHOWN_BYTES else " …"
    return f"{text}{more} ({len(blob)} bytes)"
