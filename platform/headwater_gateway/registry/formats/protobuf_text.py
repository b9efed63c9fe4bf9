"""A FileDescriptorProto as .proto text: for schemas that clients send as descriptors. Pure.

The descriptor classes are protobuf's own; `options_text` writes the options of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

SCALARS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
"""Numbers of FieldDescriptorProto.Type and their words."""
GROUP = 10
REQUIRED, REPEATED = 2, 3
FIELD_NUMBER_MAX = 536_870_911
ENUM_NUMBER_MAX = 2_147_483_647
INDENT = "  "

OptionsText = Callable[[Any], list[str]]
"""The options message of a descriptor -> `name = value` of each option that is set."""


class UnprintableError(ValueError):
    """Something that .proto text of today has no words for."""


class ProtoText:
    """Writes one file."""

    def __init__(self, options_text: OptionsText, *, sort: bool) -> None:
        """`sort`: the normalized form, in which fields come by number and imports by name."""
        self._options_text = options_text
        self._sort = sort
        self._syntax = "proto2"

    def file(self, file: Any) -> str:
        """The text of a FileDescriptorProto. Raises UnprintableError."""
        self._syntax = file.syntax or "proto2"
        lines = [f'syntax = "{self._syntax}";']
        if file.package:
            lines += ["", f"package {file.package};"]
        imports = [*self._imports(file)]
        options = [f"option {text};" for text in self._options_text(file.options)]
        for block in (imports, options):
            lines += ["", *(sorted(block) if self._sort else block)] if block else []
        for message in file.message_type:
            lines += ["", *self._message(message)]
        for enum in file.enum_type:
            lines += ["", *self._enum(enum)]
        for block in self._extensions(file.extension):
            lines += ["", *block]
        for service in file.service:
            lines += ["", *self._service(service)]
        return "\n".join(lines) + "\n"

    def _imports(self, file: Any) -> Iterator[str]:
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        for number, name in enumerate(file.dependency):
            kind = "public " if number in public else "weak " if number in weak else ""
            yield f"import {kind}{json.dumps(name)};"

    def _message(self, message: Any) -> list[str]:
        entries = {n.name: n for n in message.nested_type if n.options.map_entry}
        body = [f"option {text};" for text in self._options_text(message.options)]
        body += _reserved(message.reserved_range, message.reserved_name, FIELD_NUMBER_MAX, 1)
        fields = message.field
        if self._sort:
            fields = sorted(fields, key=lambda f: f.number)
        written: set[int] = set()
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                body.append(self._field(field, entries))
            elif field.oneof_index not in written:
                written.add(field.oneof_index)
                body += self._oneof(message, field.oneof_index, fields)
        for span in message.extension_range:
            body.append(f"extensions {_span(span.start, span.end - 1, FIELD_NUMBER_MAX)};")
        for nested in message.nested_type:
            if nested.name not in entries:
                body += self._message(nested)
        for enum in message.enum_type:
            body += self._enum(enum)
        for block in self._extensions(message.extension):
            body += block
        return _block(f"message {message.name}", body)

    def _oneof(self, message: Any, index: int, fields: Iterable[Any]) -> list[str]:
        oneof = message.oneof_decl[index]
        body = [f"option {text};" for text in self._options_text(oneof.options)]
        body += [
            self._field(f, {}, label="")
            for f in fields
            if f.HasField("oneof_index") and f.oneof_index == index
        ]
        return _block(f"oneof {oneof.name}", body)

    def _field(self, field: Any, entries: dict[str, Any], label: str | None = None) -> str:
        if field.type == GROUP:
            raise UnprintableError(f"field {field.name} is a group")
        kind = _type_name(field)
        entry = entries.get(field.type_name.rpartition(".")[2]) if field.type_name else None
        if entry is not None and field.label == REPEATED:
            key, value = sorted(entry.field, key=lambda f: f.number)
            kind, label = f"map<{_type_name(key)}, {_type_name(value)}>", ""
        words = self._label(field) if label is None else label
        options = self._field_options(field)
        shown = f" [{', '.join(options)}]" if options else ""
        return f"{words}{kind} {field.name} = {field.number}{shown};"

    def _label(self, field: Any) -> str:
        if field.label == REPEATED:
            return "repeated "
        if field.label == REQUIRED:
            return "required "
        return "optional " if self._syntax == "proto2" or field.proto3_optional else ""

    def _field_options(self, field: Any) -> list[str]:
        options = []
        if field.HasField("default_value"):
            is_text = SCALARS.get(field.type) in ("string", "bytes")
            default = json.dumps(field.default_value) if is_text else field.default_value
            options.append(f"default = {default}")
        if field.json_name and field.json_name != json_name(field.name):
            options.append(f"json_name = {json.dumps(field.json_name)}")
        options += self._options_text(field.options)
        return sorted(options) if self._sort else options

    def _enum(self, enum: Any) -> list[str]:
        body = [f"option {text};" for text in self._options_text(enum.options)]
        body += _reserved(enum.reserved_range, enum.reserved_name, ENUM_NUMBER_MAX, 0)
        for value in enum.value:
            options = self._options_text(value.options)
            shown = f" [{', '.join(options)}]" if options else ""
            body.append(f"{value.name} = {value.number}{shown};")
        return _block(f"enum {enum.name}", body)

    def _extensions(self, fields: Iterable[Any]) -> Iterator[list[str]]:
        by_type: dict[str, list[str]] = {}
        for field in fields:
            by_type.setdefault(field.extendee, []).append(self._field(field, {}))
        for extendee, lines in by_type.items():
            yield _block(f"extend {extendee}", lines)

    def _service(self, service: Any) -> list[str]:
        body = [f"option {text};" for text in self._options_text(service.options)]
        for method in service.method:
            sent = ("stream " if method.client_streaming else "") + method.input_type
            returned = ("stream " if method.server_streaming else "") + method.output_type
            head = f"rpc {method.name} ({sent}) returns ({returned})"
            options = [f"option {text};" for text in self._options_text(method.options)]
            body += _block(head, options) if options else [head + ";"]
        return _block(f"service {service.name}", body)


def json_name(name: str) -> str:
    """The JSON name that protoc gives a field: lowerCamelCase."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _type_name(field: Any) -> str:
    return str(field.type_name) if field.type_name else SCALARS[field.type]


def _block(head: str, body: Iterable[str]) -> list[str]:
    return [f"{head} {{", *(INDENT + line for line in body), "}"]


def _reserved(spans: Any, names: Any, most: int, open_end: int) -> list[str]:
    """`open_end` 1: the ends of the ranges are exclusive, as those of messages."""
    lines = [f"reserved {_span(s.start, s.end - open_end, most)};" for s in spans]
    return [*lines, *(f"reserved {json.dumps(name)};" for name in names)]


def _span(first: int, last: int, most: int) -> str:
    if first == last:
        return str(first)
    return f"{first} to {'max' if last >= most else last}"
