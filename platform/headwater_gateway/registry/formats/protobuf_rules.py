"""Whether a Protobuf schema reads another one's data: the rules of Confluent's registry. Pure.

The wire format knows numbers, not names: a renamed field is read, a field of another kind is not.
`SchemaTypes` are what the descriptors of a schema and of all that it imports say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater_gateway.registry.formats.port import Problem
from headwater_gateway.registry.formats.protobuf_text import REPEATED, REQUIRED, SCALARS

MESSAGE, ENUM = 11, 14
NUMBER, SIGNED, TEXT = "a number", "a zigzag number", "a string or bytes"
_SCALAR_KINDS = {
    "int32": NUMBER, "int64": NUMBER, "uint32": NUMBER, "uint64": NUMBER, "bool": NUMBER,
    "sint32": SIGNED, "sint64": SIGNED, "string": TEXT, "bytes": TEXT,
    "fixed32": "32 bits", "sfixed32": "32 bits", "fixed64": "64 bits", "sfixed64": "64 bits",
    "float": "a float", "double": "a double",
}  # fmt: skip
"""Scalar types with one encoding read each other (protobuf.dev, "Updating a message type")."""
_TEXTS = {
    "PACKAGE_CHANGED": "The package at '{at}' in the {reader} schema does not match the package in "
    "the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{at}' in the "
    "{writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{at}' in the {reader} schema does not "
    "match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{at}' in the {reader} schema "
    "does not match its kind in the {writer} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{at}' in the {reader} schema "
    "does not match its type in the {writer} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{at}' in the {reader} "
    "schema does not match its label in the {writer} schema",
    "REQUIRED_FIELD_ADDED": "A required field at path '{at}' in the {reader} schema is missing in "
    "the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path '{at}' in "
    "the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{at}' in the "
    "{writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{at}' in the {reader} "
    "schema are outside a oneof in the {writer} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{at}' in the {reader} schema "
    "is outside an existing oneof in the {writer} schema",
}


@dataclass(frozen=True, slots=True)
class SchemaTypes:
    """A schema's own file, and every type in it and in its imports by full name (`.pkg.Type`)."""

    file: Any
    types: Mapping[str, tuple[Any, Any]]
    """Full name -> (descriptor, its file)."""

    def local_name(self, full_name: str) -> str:
        """A type's name without the package of its file."""
        package = self.types[full_name][1].package
        return full_name.removeprefix(f".{package}.").removeprefix(".")


def reading_problems(reader: SchemaTypes, writer: SchemaTypes) -> list[Problem]:
    """Why a reader would misread, or lack, what was written."""
    return list(_Comparison(reader, writer).run())


class _Comparison:
    """One comparison; messages that fields refer to are compared once."""

    def __init__(self, reader: SchemaTypes, writer: SchemaTypes) -> None:
        self._reader = reader
        self._writer = writer
        self._seen: set[tuple[str, str]] = set()

    def run(self) -> Iterator[Problem]:
        reads, wrote = self._reader.file, self._writer.file
        if reads.package != wrote.package:
            yield _problem("PACKAGE_CHANGED", "#/")
        yield from self._messages(reads.message_type, wrote.message_type, "#")

    def _messages(self, reads: Any, wrote: Any, path: str) -> Iterator[Problem]:
        by_name = {m.name: m for m in reads}
        for message in wrote:
            if message.options.map_entry:
                continue
            at = f"{path}/{message.name}"
            if message.name not in by_name:
                yield _problem("MESSAGE_REMOVED", at)
            else:
                yield from self._message(by_name[message.name], message, at)

    def _message(self, reads: Any, wrote: Any, path: str) -> Iterator[Problem]:
        yield from _exclusive(reads, wrote, path)
        mine, theirs = {f.number: f for f in reads.field}, {f.number: f for f in wrote.field}
        gone_oneofs = _gone_oneofs(reads, wrote)
        for number in sorted(mine.keys() | theirs.keys()):
            one, other = mine.get(number), theirs.get(number)
            at = _field_path(path, reads, one, number)
            if one is None:
                yield from _removed(wrote, other, gone_oneofs, path)
            elif other is None:
                if one.label == REQUIRED:
                    yield _problem("REQUIRED_FIELD_ADDED", at)
            else:
                yield from self._field(one, other, at)
        yield from self._messages(reads.nested_type, wrote.nested_type, path)

    def _field(self, reads: Any, wrote: Any, at: str) -> Iterator[Problem]:
        mine, theirs = self._kind(self._reader, reads), self._kind(self._writer, wrote)
        if mine != theirs:
            yield _problem("FIELD_KIND_CHANGED", at)
        elif mine == "map":
            pairs = zip(
                self._entry(self._reader, reads), self._entry(self._writer, wrote), strict=True
            )
            for one, other in pairs:
                yield from self._field(one, other, at)
        elif mine == "message":
            yield from self._named(reads.type_name, wrote.type_name, at)
        else:
            yield from _scalar(reads, wrote, at)

    def _kind(self, schema: SchemaTypes, field: Any) -> str:
        if field.type in SCALARS or field.type == ENUM:
            return "scalar"
        descriptor = schema.types[field.type_name][0]
        return "map" if descriptor.options.map_entry else "message"

    def _entry(self, schema: SchemaTypes, field: Any) -> list[Any]:
        return sorted(schema.types[field.type_name][0].field, key=lambda f: int(f.number))

    def _named(self, reads: str, wrote: str, at: str) -> Iterator[Problem]:
        if self._reader.local_name(reads) != self._writer.local_name(wrote):
            yield _problem("FIELD_NAMED_TYPE_CHANGED", at)
            return
        mine, my_file = self._reader.types[reads]
        theirs, their_file = self._writer.types[wrote]
        if my_file is self._reader.file and their_file is self._writer.file:
            return  # compared among the messages of the files
        if (reads, wrote) in self._seen:
            return
        self._seen.add((reads, wrote))
        inner = list(self._message(mine, theirs, f"#/{self._reader.local_name(reads)}"))
        yield from inner
        if inner:
            yield _problem("FIELD_NAMED_TYPE_CHANGED", at)


def _problem(kind: str, at: str) -> Problem:
    return Problem(kind, _TEXTS[kind].replace("{at}", at))


def _oneof_of(message: Any, field: Any) -> str | None:
    """The name of the oneof that a field is in; an `optional` field is in none."""
    if field is None or not field.HasField("oneof_index") or field.proto3_optional:
        return None
    return str(message.oneof_decl[field.oneof_index].name)


def _field_path(path: str, message: Any, field: Any, number: int) -> str:
    oneof = _oneof_of(message, field)
    return f"{path}/{oneof}/{number}" if oneof else f"{path}/{number}"


def _gone_oneofs(reads: Any, wrote: Any) -> set[str]:
    """Oneofs of which nothing is left: they were removed as a whole, as a field may be."""
    names = {o.name for o in reads.oneof_decl}
    left = {f.number for f in reads.field}
    members: dict[str, list[int]] = {}
    for field in wrote.field:
        oneof = _oneof_of(wrote, field)
        if oneof is not None:
            members.setdefault(oneof, []).append(field.number)
    return {n for n, numbers in members.items() if n not in names and not left & {*numbers}}


def _removed(wrote: Any, field: Any, gone_oneofs: set[str], path: str) -> Iterator[Problem]:
    oneof = _oneof_of(wrote, field)
    at = _field_path(path, wrote, field, field.number)
    if oneof is not None and oneof not in gone_oneofs:
        yield _problem("ONEOF_FIELD_REMOVED", at)
    elif field.label == REQUIRED:
        yield _problem("REQUIRED_FIELD_REMOVED", at)


def _exclusive(reads: Any, wrote: Any, path: str) -> Iterator[Problem]:
    """Fields that exclude each other now and did not before: one of them would be lost."""
    theirs = {f.number: f for f in wrote.field}
    origins: dict[str, list[str | None]] = {}
    for field in reads.field:
        oneof, other = _oneof_of(reads, field), theirs.get(field.number)
        if oneof is not None and other is not None:
            origins.setdefault(oneof, []).append(_oneof_of(wrote, other))
    for oneof, before in origins.items():
        alone = before.count(None)
        if alone + len({o for o in before if o is not None}) > 1:
            kind = (
                "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if alone > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            )
            yield _problem(kind, f"{path}/{oneof}")


def _scalar(reads: Any, wrote: Any, at: str) -> Iterator[Problem]:
    mine, theirs = _scalar_kind(reads), _scalar_kind(wrote)
    if mine != theirs:
        yield _problem("FIELD_SCALAR_KIND_CHANGED", at)
    elif mine != TEXT and _label(reads) != _label(wrote):
        yield _problem("FIELD_NUMERIC_LABEL_CHANGED", at)


def _label(field: Any) -> int:
    """Whether it is repeated, required, or neither; `optional` is the same as no word."""
    return int(field.label) if field.label in (REPEATED, REQUIRED) else 0


def _scalar_kind(field: Any) -> str:
    return NUMBER if field.type == ENUM else _SCALAR_KINDS[SCALARS[field.type]]
