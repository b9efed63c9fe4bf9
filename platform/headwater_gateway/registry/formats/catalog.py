"""The schema languages by Confluent's names, each loaded on first use, and what was parsed."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from headwater_gateway.registry.formats.port import (
    NamedText,
    ParsedSchema,
    SchemaFormat,
    SchemaSyntaxError,
)
from headwater_gateway.registry.values import AVRO, JSON, PROTOBUF

_PACKAGE = "headwater_gateway.registry.formats"
_FORMATS = {
    AVRO: ("avro_schemas", "AvroFormat"),
    JSON: ("json_schemas", "JsonFormat"),
    PROTOBUF: ("protobuf_schemas", "ProtobufFormat"),
}
PARSED_MAX = 1_000
"""Parsed schemas that are kept: protoc takes some 10 ms for one."""

_Key = tuple[str, str, tuple[NamedText, ...]]


class FormatCatalog:
    """Parses schemas of every language; any thread may call it."""

    def __init__(self) -> None:
        self._formats: dict[str, SchemaFormat] = {}
        self._parsed: OrderedDict[_Key, ParsedSchema] = OrderedDict()
        self._lock = Lock()

    def parse(
        self, schema_type: str, text: str, references: Sequence[NamedText] = ()
    ) -> ParsedSchema:
        """Raises SchemaSyntaxError, and KeyError for a language that is not known."""
        key = (schema_type, text, tuple(references))
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        try:
            parsed = self._format(schema_type).parse(text, references)
        except RecursionError as error:
            raise SchemaSyntaxError("the schema is nested too deeply") from error
        try:
            parsed.text.encode()
        except UnicodeEncodeError as error:
            raise SchemaSyntaxError("the schema has half of a surrogate pair") from error
        with self._lock:
            self._parsed[key] = parsed
            while len(self._parsed) > PARSED_MAX:
                self._parsed.popitem(last=False)
        return parsed

    def _format(self, schema_type: str) -> SchemaFormat:
        known = self._formats.get(schema_type)
        if known is None:
            module, name = _FORMATS[schema_type]
            known = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)()
            self._formats[schema_type] = known
        return known
