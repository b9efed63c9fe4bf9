"""Avro, by the library `avro`: parsing, names of references, whether a reader reads a writer.

The only module that imports `avro`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import avro.compatibility
import avro.errors
import avro.name
import avro.schema

from headwater_gateway.registry.formats.avro_text import canonical_avro
from headwater_gateway.registry.formats.port import (
    NamedText,
    ParsedSchema,
    Problem,
    SchemaSyntaxError,
)

_KINDS = {
    "name_mismatch": ("NAME_MISMATCH", "The name of the schema has changed (path '{at}')"),
    "fixed_size_mismatch": (
        "FIXED_SIZE_MISMATCH",
        (
            "The size of FIXED type field at path '{at}' in the {reader} schema does not match "
            "the {writer} schema"
        ),
    ),
    "missing_enum_symbols": (
        "MISSING_ENUM_SYMBOLS",
        (
            "The {reader} schema is missing enum symbols '{said}' at path '{at}' in the {writer} "
            "schema"
        ),
    ),
    "reader_field_missing_default_value": (
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        (
            "The field '{said}' at path '{at}' in the {reader} schema has no default value and is "
            "missing in the {writer} schema"
        ),
    ),
    "type_mismatch": (
        "TYPE_MISMATCH",
        (
            "The type (path '{at}') of a field in the {reader} schema does not match with the "
            "{writer} schema"
        ),
    ),
    "missing_union_branch": (
        "MISSING_UNION_BRANCH",
        (
            "The {reader} schema is missing a type inside a union field at path '{at}' in the "
            "{writer} schema"
        ),
    ),
}
"""Kinds of the library -> those of Avro's Java library, and Confluent's descriptions."""


class AvroFormat:
    """Avro."""

    def parse(self, text: str, references: Sequence[NamedText]) -> ParsedSchema:
        """Raises SchemaSyntaxError."""
        names = avro.name.Names()
        for reference in references:
            _parse(_document(reference.text, f"reference {reference.name}"), names)
        document = _document(text, "the schema")
        parsed = _parse(document, names)
        _qualify_aliases(names)
        return AvroSchema(document, parsed)


class AvroSchema:
    """A parsed Avro schema."""

    def __init__(self, document: Any, parsed: Any) -> None:
        """`document`: the schema's JSON; `parsed`: the library's schema of it."""
        self._document = document
        self._parsed = parsed
        self._text = canonical_avro(document)

    @property
    def text(self) -> str:
        """The canonical text."""
        return self._text

    def normalized(self) -> ParsedSchema:
        """Properties that are not Avro's sorted by name."""
        text = canonical_avro(self._document, sort_properties=True)
        return AvroSchema(json.loads(text), self._parsed)

    def is_same(self, other: ParsedSchema) -> bool:
        """True for equal canonical texts."""
        return isinstance(other, AvroSchema) and other.text == self.text

    def problems_reading(self, writer: ParsedSchema) -> list[Problem]:
        """By the library; its kinds by the names of Avro's Java library."""
        assert isinstance(writer, AvroSchema)
        return _problems(self._parsed, writer._parsed)

    def formatted(self, form: str) -> str:
        """`resolved` is not known: the text itself."""
        return self._text


def _document(text: str, what: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        if text.strip().isidentifier():
            return text.strip()  # a primitive without quotes, as Java's parser takes it
        raise SchemaSyntaxError(f"{what} is not JSON: {error}") from error
    except RecursionError as error:
        raise SchemaSyntaxError(f"{what} is nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise SchemaSyntaxError(f"an object of the schema has the key {twice!r} twice")
    return found


def _parse(document: Any, names: Any) -> Any:
    try:
        return avro.schema.make_avsc_object(document, names)
    except avro.errors.AvroException as error:
        raise SchemaSyntaxError(str(error)) from error
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise SchemaSyntaxError(f"not an Avro schema: {error!r}") from error


def _qualify_aliases(names: Any) -> None:
    """An alias without a namespace has that of its type; the library compares them as written."""
    for name, schema in names.names.items():
        aliases, space = schema.props.get("aliases"), name.rpartition(".")[0]
        if isinstance(aliases, list) and space:
            full = [a if "." in str(a) else f"{space}.{a}" for a in aliases]
            schema.set_prop("aliases", full)


def _problems(reader: Any, writer: Any) -> list[Problem]:
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()
    result = checker.get_compatibility(reader, writer)
    if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
        return []
    at = ", ".join(sorted(result.locations))
    said = "; ".join(sorted(result.messages))
    problems = []
    for kind in dict.fromkeys(k.value for k in result.incompatibilities):
        name, text = _KINDS[kind]
        problems.append(Problem(name, text.replace("{at}", at).replace("{said}", said), said))
    return problems or [Problem("INCOMPATIBLE", said)]
