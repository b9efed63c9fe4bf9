"""The form of a new record: its fields as bytes, and a record's bytes as fields. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from headwater.client.values import ConsumerRecord, Headers
from headwater.errors import UsageError
from headwater_gateway.console.fields import Fields

KINDS = ("text", "json", "hex", "null")
HEADERS_MAX = 100
_HEX_MARK = "hex:"


class NewRecord(NamedTuple):
    """What will be sent. `partition` None: the partitioner decides."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None


class RecordFields(NamedTuple):
    """A record as a form shows it."""

    key_kind: str
    key: str
    value_kind: str
    value: str
    headers: str
    partition: str


NEW_RECORD = RecordFields("null", "", "json", "", "", "")


def new_record(given: Mapping[str, str]) -> NewRecord:
    """The record that a form asks for. Raises UsageError that names the field."""
    fields = Fields(given)
    partition = fields.optional("partition")
    return NewRecord(
        _blob("key", fields.one_of("key_kind", *KINDS), given.get("key", "")),
        _blob("value", fields.one_of("value_kind", *KINDS), given.get("value", "")),
        _headers(given.get("headers", "")),
        None if partition is None else fields.number("partition", most=2**31 - 1),
    )


def as_fields(record: ConsumerRecord) -> RecordFields:
    """The fields that give the same bytes again."""
    key_kind, key = _shown(record.key)
    value_kind, value = _shown(record.value)
    lines = [_header_line(name, blob) for name, blob in record.headers]
    return RecordFields(key_kind, key, value_kind, value, "\n".join(lines), str(record.partition))


def _shown(blob: bytes | None) -> tuple[str, str]:
    """(kind, text). What a form field would change, as a lone CR, goes as hex."""
    if blob is None:
        return "null", ""
    try:
        text = blob.decode("utf-8")
    except UnicodeDecodeError:
        return "hex", blob.hex(" ")
    is_plain = all(char.isprintable() or char in "\n\t" for char in text)
    return ("text", text) if is_plain else ("hex", blob.hex(" "))


def _header_line(name: str, blob: bytes | None) -> str:
    kind, text = _shown(blob)
    if kind == "null":
        return name
    is_line = kind == "text" and "\n" not in text and not text.startswith(_HEX_MARK)
    return (
        f"{name}: {text}"
        if is_line and text == text.strip()
        else f"{name}: {_HEX_MARK}{(blob or b'').hex()}"
    )


def _blob(name: str, kind: str, text: str) -> bytes | None:
    if kind == "null":
        if text.strip():
            raise UsageError(
                f"{name} is null, yet its field is filled in: choose text, or empty it"
            )
        return None
    text = text.replace("\r\n", "\n")  # a form's line ends
    if kind == "hex":
        return _from_hex(name, text)
    if kind == "json":
        _check_json(name, text)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}: character {error.start} is half of a pair: no UTF-8") from None


def _check_json(name: str, text: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is no JSON: {error}; choose text to send it as it is") from None
    except RecursionError:
        raise UsageError(f"{name} nests too deep for a check: choose text") from None


def _from_hex(name: str, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise UsageError(f"{name} is no hex: write pairs of 0-9 and a-f, as 00 ff") from None


def _headers(text: str) -> Headers:
    found: Headers = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if not line.strip():
            continue
        name, mark, value = line.partition(":")
        value = value.strip()
        if not name.strip():
            raise UsageError(f"headers: {line[:60]!r} has no name: write name: value")
        blob: bytes | None = value.encode("utf-8", "replace") if mark else None
        if value.startswith(_HEX_MARK):
            blob = _from_hex(f"header {name.strip()}", value.removeprefix(_HEX_MARK))
        found.append((name.strip(), blob))
    if len(found) > HEADERS_MAX:
        raise UsageError(f"headers has {len(found)} lines: {HEADERS_MAX} are the most")
    return found
