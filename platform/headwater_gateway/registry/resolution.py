"""From a content to a parsed schema: the texts of its references, from the state."""

from __future__ import annotations

from headwater_gateway.registry.errors import invalid_schema
from headwater_gateway.registry.formats.catalog import FormatCatalog
from headwater_gateway.registry.formats.port import NamedText, ParsedSchema, SchemaSyntaxError
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.subjects import beside
from headwater_gateway.registry.values import SCHEMA_TYPES, SchemaContent, SubjectVersion

REFERENCES_MAX = 1_000
"""Schemas behind one schema, all levels together."""


def parsed(
    state: RegistryState, formats: FormatCatalog, subject: str, content: SchemaContent
) -> ParsedSchema:
    """The parsed schema. Raises RegistryError (42201)."""
    if content.schema_type not in SCHEMA_TYPES:
        raise invalid_schema(f"Invalid schema type {content.schema_type}")
    texts: dict[str, str] = {}
    _collect(state, subject, content, texts, ())
    try:
        return formats.parse(
            content.schema_type, content.text, [NamedText(n, t) for n, t in texts.items()]
        )
    except SchemaSyntaxError as error:
        raise invalid_schema(str(error)) from error


def parsed_version(
    state: RegistryState, formats: FormatCatalog, version: SubjectVersion
) -> ParsedSchema:
    """The parsed schema of a version. Raises RegistryError."""
    return parsed(state, formats, version.subject, version.content)


def _collect(
    state: RegistryState,
    subject: str,
    content: SchemaContent,
    texts: dict[str, str],
    path: tuple[tuple[str, int], ...],
) -> None:
    """Put the texts behind a content, those referred to first."""
    for reference in content.references:
        if reference.name in texts:
            continue
        target = beside(subject, reference.subject)
        # A version that was deleted softly still serves the schemas that refer to it.
        found = state.version(target, reference.version, deleted=True)
        if found is None:
            raise invalid_schema(
                f'No schema reference found for subject "{reference.subject}" and version '
                f"{reference.version}"
            )
        place = (found.subject, found.version)
        if place in path or len(texts) >= REFERENCES_MAX:
            raise invalid_schema(f"its references go round or are too many, at {reference.name}")
        _collect(state, found.subject, found.content, texts, (*path, place))
        texts[reference.name] = found.content.text
