"""Decodes one key or value for people, and tells why each way before the one that fits does not.

The ways, in order: the format that the topic declares, the frame with a schema id, JSON, UTF-8,
hex.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from headwater_gateway.console.messages.plain_values import plain_row
from headwater_tier.typed.decoding import DeclaredFormat, RegisteredSchema, SchemaSource
from headwater_tier.typed.formats.confluent import (
    HEADER_BYTES,
    MAGIC,
    FileSource,
    id_of,
    message_indexes,
)
from headwater_tier.typed.formats.json_values import exact_value, fast_value, json_fault
from headwater_tier.typed.formats.misfit import NotFittingError, UnsupportedSchemaError
from headwater_tier.typed.formats.rows import UNFORESEEN
from headwater_tier.typed.formats.source_columns import Source
from headwater_tier.typed.formats.sources import declared_source, registered_source
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError

AUTO = "auto"
CHOICES = (AUTO, "json", "text", "hex", "frame", "declared")
"""What the address may ask for, of a key and of a value."""
SOURCES_MAX = 500
"""Schemas kept parsed; the oldest goes first."""
_SCHEMA_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF"}
_SUBJECT = "registry:"
_JSON_BEGINS = (b"{", b"[")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Step(NamedTuple):
    """One way that was tried. `at_byte`: from where on the bytes are not of this way."""

    name: str
    is_ok: bool
    detail: str
    at_byte: int | None = None


class DecodedBlob(NamedTuple):
    """`kind`: null, json, avro, protobuf, text or hex (then the value is the bytes)."""

    kind: str
    value: Any
    schema_id: int | None = None


class RefusedError(Exception):
    """A way that does not fit these bytes."""

    def __init__(self, name: str, detail: str, at_byte: int | None = None) -> None:
        super().__init__(detail)
        self.step = Step(name, False, detail, at_byte)


Steps = list[Step]
Way = Callable[[bytes, Steps], DecodedBlob]


class BlobReader:
    """Decodes the keys, or the values, of one topic. Not thread-safe."""

    def __init__(
        self, schemas: SchemaSource, declared: DeclaredFormat | None = None, choice: str = AUTO
    ) -> None:
        self._schemas = schemas
        self._declared = declared
        self._ways = self._chosen(choice)
        self._is_json_first = choice == "json" or (
            choice == AUTO and (declared is None or declared.format == "json")
        )
        self._readers: dict[tuple[int, tuple[int, ...]], Callable[[bytes], Any]] = {}
        self._sources: dict[int, Source | FileSource] = {}

    def decode(self, blob: bytes | None) -> DecodedBlob:
        """The value by the first way that fits; hex fits always."""
        if self._is_json_first and blob is not None and blob[:1] in _JSON_BEGINS:
            try:  # no frame begins so: most records of most topics need no other way
                return DecodedBlob("json", fast_value(blob))
            except NotFittingError:
                pass  # the ways below say why
        return self._decode(blob, [])

    def trace(self, blob: bytes | None) -> tuple[DecodedBlob, Sequence[Step]]:
        """The value, and each way that was tried."""
        steps: Steps = []
        found = self._decode(blob, steps)
        return found, steps

    def _decode(self, blob: bytes | None, steps: Steps) -> DecodedBlob:
        if blob is None:
            return DecodedBlob("null", None)
        for way in self._ways:
            try:
                return way(blob, steps)
            except RefusedError as error:
                steps.append(error.step)
        return _hex(blob, steps)

    def _chosen(self, choice: str) -> tuple[Way, ...]:
        by_name: dict[str, tuple[Way, ...]] = {
            "json": (_json,),
            "text": (_text,),
            "hex": (),
            "frame": (self._frame,),
            "declared": (self._by_declaration,),
        }
        ways = by_name.get(choice)
        if ways is not None:
            return ways
        first = (self._by_declaration,) if self._declared is not None else ()
        return (*first, self._frame, _json, _printable)

    def _by_declaration(self, blob: bytes, steps: Steps) -> DecodedBlob:
        declared = self._declared
        if declared is None:
            raise RefusedError("declared format", "the topic's configs declare none")
        name = f"declared format {declared.format}"
        if declared.format == "confluent":
            return self._frame(blob, steps)
        if declared.format == "json":
            return _json(blob, steps, name)
        if declared.format == "string":
            return _text(blob, steps, name)
        kind = _SCHEMA_TYPES.get(declared.format)
        if kind is None:
            raise RefusedError(name, "it is not known here")
        read = self._cached((-1, ()), name, lambda: self._declared_source(declared, kind))
        value = self._read(read, blob, name, 0)
        steps.append(Step(name, True, "the bytes are of the declared schema"))
        return DecodedBlob(declared.format, value)

    def _declared_source(self, declared: DeclaredFormat, kind: str) -> Source:
        if not declared.schema.startswith(_SUBJECT):
            return declared_source(RegisteredSchema(0, kind, declared.schema), declared.message)
        subject = declared.schema.removeprefix(_SUBJECT)
        found = self._schemas.latest(subject)
        if found is None:
            raise RefusedError("schema", f"the registry has no subject {subject}")
        return declared_source(found, declared.message)

    def _frame(self, blob: bytes, steps: Steps) -> DecodedBlob:
        schema_id = id_of(blob)
        if schema_id is None:
            raise _no_frame(blob)
        steps.append(Step("frame", True, f"magic byte 0, then schema id {schema_id}"))
        try:
            registered = self._schemas.by_id(schema_id) if schema_id >= 0 else None
        except SchemaUnavailableError as error:
            raise RefusedError("registry", str(error)) from None
        if registered is None:
            raise RefusedError("registry", f"the registry has no schema {schema_id}", 1)
        steps.append(
            Step("registry", True, f"schema {schema_id} is of type {registered.schema_type}")
        )
        payload, key = self._payload(blob, registered)
        if registered.schema_type == "JSON":
            parsed = _json(payload, steps, "schema", blob_offset=len(blob) - len(payload))
            return DecodedBlob("json", parsed.value, schema_id)
        read = self._cached(key, "schema", lambda: self._message(registered, key[1]))
        value = self._read(read, payload, "schema", len(blob) - len(payload))
        steps.append(Step("schema", True, f"{len(payload)} bytes of the schema"))
        return DecodedBlob(registered.schema_type.lower(), value, schema_id=schema_id)

    def _payload(
        self, blob: bytes, registered: RegisteredSchema
    ) -> tuple[bytes, tuple[int, tuple[int, ...]]]:
        """The bytes behind the frame, and what names the reader of them."""
        schema_id = registered.schema_id
        if registered.schema_type != "PROTOBUF":
            return blob[HEADER_BYTES:], (schema_id, ())
        try:
            indexes, at = message_indexes(blob, HEADER_BYTES)
        except NotFittingError as error:
            raise RefusedError("frame", error.detail, HEADER_BYTES) from None
        return blob[at:], (schema_id, indexes)

    def _message(self, registered: RegisteredSchema, indexes: tuple[int, ...]) -> Source:
        source = self._sources.get(registered.schema_id)
        if source is None:
            source = self._sources[registered.schema_id] = registered_source(registered)
            if len(self._sources) > SOURCES_MAX:
                del self._sources[next(iter(self._sources))]
        return source.at(indexes) if isinstance(source, FileSource) else source

    def _cached(
        self, key: tuple[int, tuple[int, ...]], name: str, source_of: Callable[[], Source]
    ) -> Callable[[bytes], Any]:
        read = self._readers.get(key)
        if read is None:
            try:
                read = _reader(source_of(), name)
            except SchemaUnavailableError as error:
                raise RefusedError("registry", str(error)) from None
            except UnsupportedSchemaError as error:
                raise RefusedError(name, f"its schema has no use here: {error}") from None
            self._readers[key] = read
            if len(self._readers) > SOURCES_MAX:
                del self._readers[next(iter(self._readers))]
        return read

    def _read(self, read: Callable[[bytes], Any], payload: bytes, name: str, first: int) -> Any:
        try:
            return read(payload)
        except RefusedError as error:
            at = error.step.at_byte
            raise RefusedError(
                name, error.step.detail, None if at is None else first + at
            ) from None


def _reader(source: Source, name: str) -> Callable[[bytes], Any]:
    """The function from bytes to a plain value. It raises RefusedError with the byte."""
    read, plain = source.reader(source.columns), plain_row(source.columns)
    is_bare = getattr(source, "is_record", True) is False

    def convert(blob: bytes) -> Any:
        try:
            row = plain(read(blob))
        except NotFittingError as error:
            raise RefusedError(name, error.detail, source.fault_at(blob)) from None
        except UNFORESEEN as error:
            detail = f"{type(error).__name__}: {error}"
            raise RefusedError(name, detail, source.fault_at(blob)) from None
        return next(iter(row.values()), None) if is_bare else row

    return convert


def _no_frame(blob: bytes) -> RefusedError:
    if len(blob) < HEADER_BYTES:
        detail = f"{len(blob)} bytes are fewer than a frame's {HEADER_BYTES}"
        return RefusedError("frame", detail, len(blob))
    return RefusedError("frame", f"byte 0 is {blob[0]:#04x}, a frame begins with {MAGIC:#04x}", 0)


def _json(blob: bytes, steps: Steps, name: str = "JSON", blob_offset: int = 0) -> DecodedBlob:
    try:
        value = fast_value(blob)
    except NotFittingError as error:
        fault = json_fault(blob)
        detail, at = fault if fault is not None else (error.detail, 0)
        raise RefusedError(name, detail, blob_offset + at) from None
    steps.append(Step(name, True, f"{len(blob)} bytes"))
    return DecodedBlob("json", value)


def exact(blob: bytes, decoded: DecodedBlob) -> Any:
    """The value with every number as it was written: fractions as Decimal, integers of any length.
    Of JSON with equal keys, and of other kinds, the decoded value."""
    if decoded.kind != "json":
        return decoded.value
    try:
        return exact_value(blob if decoded.schema_id is None else blob[HEADER_BYTES:])
    except NotFittingError:
        return decoded.value


def _text(blob: bytes, steps: Steps, name: str = "UTF-8") -> DecodedBlob:
    try:
        text = blob.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte {blob[error.start]:#04x}: {error.reason}"
        raise RefusedError(name, detail, error.start) from None
    steps.append(Step(name, True, f"{len(text)} characters"))
    return DecodedBlob("text", text)


def _printable(blob: bytes, steps: Steps) -> DecodedBlob:
    """Text by guess: what has control characters is shown as hex unless someone asks for text."""
    found = _CONTROL.search(blob)
    if found is not None:
        detail = f"byte {blob[found.start()]:#04x} is a control character"
        raise RefusedError("UTF-8", detail, found.start())
    return _text(blob, steps)


def _hex(blob: bytes, steps: Steps) -> DecodedBlob:
    steps.append(Step("hex", True, f"{len(blob)} bytes as they are"))
    return DecodedBlob("hex", blob)


def first_faults(steps: Sequence[Step]) -> Iterator[str]:
    """One line for each way that did not fit."""
    for step in steps:
        if not step.is_ok:
            where = "" if step.at_byte is None else f" at byte {step.at_byte}"
            yield f"{step.name}{where}: {step.detail}"
