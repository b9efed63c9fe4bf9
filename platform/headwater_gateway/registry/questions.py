"""The answers to GET requests, as JSON: functions of a state (Confluent's resource classes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater_gateway.registry.errors import (
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from headwater_gateway.registry.formats.catalog import FormatCatalog
from headwater_gateway.registry.records import content_document
from headwater_gateway.registry.registration import in_other_contexts
from headwater_gateway.registry.resolution import parsed_version
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.subjects import (
    WILDCARD_PREFIX,
    context_prefix,
    normal_subject,
    parse_subject,
)
from headwater_gateway.registry.values import LATEST, SubjectVersion

QUALIFIED = "qualified"


def schema_document(version: SubjectVersion) -> dict[str, Any]:
    """A version as most replies show it."""
    document = {
        "subject": version.subject,
        "version": version.version,
        "id": version.schema_id,
        "guid": version.content.guid,
        **content_document(version.content),
        "schema": version.content.text,
    }
    return {**document, "deleted": True} if version.is_deleted else document


def registered_document(version: SubjectVersion) -> dict[str, Any]:
    """The reply to a registration."""
    document = schema_document(version)
    del document["subject"]
    return document


def in_form(
    state: RegistryState,
    formats: FormatCatalog,
    version: SubjectVersion,
    document: dict[str, Any],
    form: str,
) -> dict[str, Any]:
    """The document with the schema's text in the form that `format` asks for."""
    if form.strip():
        document["schema"] = parsed_version(state, formats, version).formatted(form)
    return document


def find_version(
    state: RegistryState, subject: str, number: int, *, deleted: bool
) -> SubjectVersion:
    """A version, also in another context if the subject names none. Raises RegistryError."""
    for name in (subject, *in_other_contexts(state, subject)):
        found = state.version(name, number, deleted=deleted)
        if found is not None:
            return found
    if not state.has_subject(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise version_not_found("latest" if number == LATEST else number)


def find_by_id(state: RegistryState, schema_id: int, subject: str) -> SubjectVersion:
    """A version with an id. `subject` names the context, or narrows the search in it; without one
    the default context comes first, then the others. Raises RegistryError (40403)."""
    for found in _with_id(state, schema_id, subject):
        return found
    raise schema_not_found(schema_id)


def _with_id(state: RegistryState, schema_id: int, subject: str) -> list[SubjectVersion]:
    qualified = parse_subject(subject)
    found = state.with_id(qualified.prefix, schema_id)
    if qualified.subject:
        narrow = [v for v in found if v.subject == str(qualified)]
        if narrow:
            return narrow
        others = [
            v
            for name in in_other_contexts(state, subject)
            for v in state.with_id(parse_subject(name).prefix, schema_id)
            if v.subject == name
        ]
        return others or found
    if found or subject:
        return found
    prefixes = (context_prefix(c) for c in state.contexts())
    return [v for prefix in prefixes if prefix for v in state.with_id(prefix, schema_id)][:1]


def by_id_document(version: SubjectVersion, max_id: int | None) -> dict[str, Any]:
    """A schema as `/schemas/ids/ID` shows it."""
    document: dict[str, Any] = {
        "schema": version.content.text,
        **content_document(version.content),
        "guid": version.content.guid,
    }
    return document if max_id is None else {**document, "maxId": max_id}


def versions_of_id(
    state: RegistryState, schema_id: int, subject: str, *, deleted: bool
) -> list[SubjectVersion]:
    """All versions with an id, in one context. Raises RegistryError (40403)."""
    found = find_by_id(state, schema_id, subject)
    prefix = parse_subject(found.subject).prefix
    named = normal_subject(subject) if parse_subject(subject).subject else ""
    rows = [
        v
        for v in state.with_id(prefix, schema_id)
        if (deleted or not v.is_deleted) and named in ("", v.subject)
    ]
    return sorted(rows, key=lambda v: (v.subject, v.version))


def find_by_guid(state: RegistryState, guid: str) -> list[SubjectVersion]:
    """A version of each context that has a content. Raises RegistryError (40403)."""
    rows = (state.with_guid(context_prefix(c), guid.lower()) for c in state.contexts())
    found = [row[0] for row in rows if row]
    if not found:
        raise schema_not_found(guid)
    return found


def list_subjects(
    state: RegistryState, prefix: str, *, deleted: bool, deleted_only: bool
) -> list[str]:
    """The subjects that begin with a prefix; `:*:` before it stands for any context."""
    found = [s for s in state.subjects() if _begins(s, prefix)]
    if deleted_only:
        return [s for s in found if not state.has_subject(s, deleted=False)]
    return [s for s in found if state.has_subject(s, deleted=deleted)]


def _begins(subject: str, prefix: str) -> bool:
    if prefix.startswith(WILDCARD_PREFIX):
        return parse_subject(subject).subject.startswith(prefix.removeprefix(WILDCARD_PREFIX))
    context = parse_subject(prefix)
    if context.context != parse_subject(subject).context:
        return False
    return parse_subject(subject).subject.startswith(context.subject)


def list_versions(
    state: RegistryState,
    subject: str,
    *,
    deleted: bool,
    deleted_only: bool,
    as_negative: bool,
) -> list[int]:
    """The versions of a subject; `as_negative` shows deleted ones below zero. Raises
    RegistryError (40401)."""
    if not state.has_subject(subject, deleted=deleted or deleted_only or as_negative):
        raise subject_not_found(subject)
    versions = state.versions(subject)
    if as_negative:
        return [-v.version if v.is_deleted else v.version for v in versions]
    if deleted_only:
        return [v.version for v in versions if v.is_deleted]
    return [v.version for v in versions if deleted or not v.is_deleted]


def list_schemas(
    state: RegistryState, prefix: str, *, deleted: bool, latest_only: bool
) -> list[SubjectVersion]:
    """The versions of all subjects that begin with a prefix."""
    found: list[SubjectVersion] = []
    for subject in list_subjects(state, prefix, deleted=deleted, deleted_only=False):
        versions = state.versions(subject, deleted=deleted)
        found += versions[-1:] if latest_only else versions
    return found


def latest_with_metadata(
    state: RegistryState, subject: str, wanted: Mapping[str, str], *, deleted: bool
) -> SubjectVersion:
    """The newest version whose metadata has these properties. Raises RegistryError."""
    for version in reversed(state.versions(subject, deleted=deleted)):
        properties = (version.content.metadata or {}).get("properties") or {}
        if all(properties.get(key) == value for key, value in wanted.items()):
            return version
    if not state.has_subject(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


def referenced_by(state: RegistryState, version: SubjectVersion, *, deleted: bool) -> list[int]:
    """The ids of the schemas that refer to a version."""
    found = state.referrers(version.subject, version.version, deleted=deleted)
    return sorted({v.schema_id for v in found})


def qualified_references(version: SubjectVersion, document: dict[str, Any]) -> dict[str, Any]:
    """The document with the references' contexts written out (`referenceFormat=qualified`)."""
    prefix = parse_subject(version.subject).prefix
    references = version.content.references
    if prefix and references:
        document["references"] = [
            {
                **r.document(),
                "subject": r.subject if r.subject.startswith(":.") else prefix + r.subject,
            }
            for r in references
        ]
    return document


def page(rows: list[Any], offset: int, limit: int) -> list[Any]:
    """Part of a list; a limit below zero: to its end."""
    start = max(offset, 0)
    return rows[start:] if limit < 0 else rows[start : start + limit]
