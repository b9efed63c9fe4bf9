"""Register a schema, look one up, check one: `KafkaSchemaRegistry.register` and its neighbours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headwater_gateway.registry.compatibility import Earlier, incompatibilities
from headwater_gateway.registry.decision import Decision
from headwater_gateway.registry.errors import (
    incompatible,
    invalid_schema,
    invalid_subject,
    not_permitted,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from headwater_gateway.registry.formats.catalog import FormatCatalog
from headwater_gateway.registry.formats.port import ParsedSchema
from headwater_gateway.registry.records import ContextRecord, Record, SchemaRecord
from headwater_gateway.registry.requests import SchemaRequest
from headwater_gateway.registry.resolution import parsed, parsed_version
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.subjects import (
    DEFAULT_CONTEXT,
    context_prefix,
    is_valid_subject,
    parse_subject,
    prefix_of,
)
from headwater_gateway.registry.values import (
    LATEST,
    CompatibilityLevel,
    Mode,
    Reference,
    SchemaContent,
    SubjectVersion,
)


def register(
    state: RegistryState,
    formats: FormatCatalog,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool,
) -> Decision:
    """The reply is the SubjectVersion, an earlier one if the subject has the schema. Raises
    RegistryError."""
    if not is_valid_subject(subject):
        raise invalid_subject(subject)
    mode = state.mode_in_scope(subject)
    _check_mode(subject, request, mode)
    content, schema = canonical(state, formats, subject, request.content, normalize=normalize)
    found = _registered(state, formats, subject, request, content, schema)
    if found is not None:
        return Decision(found)
    if not mode.takes_ids:
        level = state.level_in_scope(subject)
        problems = _problems(
            state, formats, level, content, schema, state.versions(subject, deleted=False)
        )
        if problems:
            raise incompatible(subject, problems)
    number = _next_version(state, subject, request, mode)
    schema_id = _schema_id(state, subject, request, content)
    version = SubjectVersion(subject, number, schema_id, content)
    return Decision(version, (*_context(state, subject), *_replaced(state, version)))


def _check_mode(subject: str, request: SchemaRequest, mode: Mode) -> None:
    where = f"Subject {subject} in context {prefix_of(subject)}"
    if mode.is_read_only:
        raise not_permitted(f"{where} is in read-only mode")
    if request.schema_id >= 0 and not mode.takes_ids:
        raise not_permitted(f"{where} is not in import mode")
    if request.schema_id < 0 and mode is not Mode.READWRITE:
        raise not_permitted(f"{where} is not in read-write mode")


def canonical(
    state: RegistryState,
    formats: FormatCatalog,
    subject: str,
    content: SchemaContent,
    *,
    normalize: bool,
) -> tuple[SchemaContent, ParsedSchema]:
    """The content as it is stored, and the parsed schema. Raises RegistryError (42201)."""
    fixed = replace(
        content, references=tuple(_fixed(state, subject, r) for r in content.references)
    )
    schema = parsed(state, formats, subject, fixed)
    if normalize:
        schema = schema.normalized()
        fixed = replace(fixed, references=tuple(sorted(fixed.references, key=lambda r: r.name)))
    return replace(fixed, text=schema.text), schema


def _fixed(state: RegistryState, subject: str, reference: Reference) -> Reference:
    """`latest` becomes the number that it is now."""
    if reference.version != LATEST:
        return reference
    found = state.version(prefix_of(subject) + reference.subject, LATEST, deleted=False)
    return reference if found is None else replace(reference, version=found.version)


def _registered(
    state: RegistryState,
    formats: FormatCatalog,
    subject: str,
    request: SchemaRequest,
    content: SchemaContent,
    schema: ParsedSchema,
) -> SubjectVersion | None:
    """The version that the subject has of the schema, unless a version was asked for."""
    if request.version:
        return None
    found = _version_of(state, formats, subject, content, schema, deleted=False)
    wanted = request.schema_id
    return found if found is None or wanted < 0 or wanted == found.schema_id else None


def _version_of(
    state: RegistryState,
    formats: FormatCatalog,
    subject: str,
    content: SchemaContent,
    schema: ParsedSchema,
    *,
    deleted: bool,
) -> SubjectVersion | None:
    """The newest version of a subject with the schema."""
    versions = state.versions(subject, deleted=deleted)
    for version in reversed(versions):
        if version.content.guid == content.guid:
            return version
    for version in reversed(versions):
        if _is_alike(version.content, content):
            try_other = parsed_version(state, formats, version)
            if try_other.is_same(schema):
                return version
    return None


def _is_alike(one: SchemaContent, other: SchemaContent) -> bool:
    return (one.schema_type, one.metadata, one.rule_set) == (
        other.schema_type,
        other.metadata,
        other.rule_set,
    )


def _next_version(state: RegistryState, subject: str, request: SchemaRequest, mode: Mode) -> int:
    versions = state.versions(subject)
    following = versions[-1].version + 1 if versions else 1
    if request.version in (0, following):
        return following
    if not mode.takes_ids:
        raise invalid_schema(f"Version {request.version} is not one more than previous version")
    return request.version


def _schema_id(
    state: RegistryState, subject: str, request: SchemaRequest, content: SchemaContent
) -> int:
    """The id that came with the schema, else that of the same content, else the next one."""
    prefix = prefix_of(subject)
    if request.schema_id >= 0:
        for holder in state.with_id(prefix, request.schema_id):
            if holder.content.guid != content.guid:
                raise not_permitted(
                    f"Overwrite new schema with id {request.schema_id} in context {prefix} is not "
                    "permitted."
                )
        return request.schema_id
    same = [v for v in state.with_guid(prefix, content.guid) if _is_alike(v.content, content)]
    return same[0].schema_id if same else state.max_id(prefix) + 1


def _context(state: RegistryState, subject: str) -> tuple[Record, ...]:
    context = parse_subject(subject).context
    if context == DEFAULT_CONTEXT or state.has_context(context):
        return ()
    return (ContextRecord(context),)


def _replaced(state: RegistryState, version: SubjectVersion) -> tuple[Record, ...]:
    """The version, and the end of softly deleted ones with the same id that nobody refers to."""
    gone = [
        SchemaRecord(old.subject, old.version, None)
        for old in state.versions(version.subject)
        if old.is_deleted
        and old.schema_id == version.schema_id
        and old.version < version.version
        and not state.referrers(old.subject, old.version, deleted=True)
    ]
    return (*gone, SchemaRecord(version.subject, version.version, version))


def look_up(
    state: RegistryState,
    formats: FormatCatalog,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool,
    deleted: bool,
) -> SubjectVersion:
    """The subject's version of a schema; without a context, the other contexts are searched too.
    Raises RegistryError."""
    for name in (subject, *in_other_contexts(state, subject)):
        content, schema = canonical(state, formats, name, request.content, normalize=normalize)
        found = _version_of(state, formats, name, content, schema, deleted=deleted)
        if found is not None:
            return found
    if not state.has_subject(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


def in_other_contexts(state: RegistryState, subject: str) -> list[str]:
    """A subject without a context, in each of the contexts that have it."""
    if parse_subject(subject).context != DEFAULT_CONTEXT:
        return []
    names = (context_prefix(c) + subject for c in state.contexts() if c != DEFAULT_CONTEXT)
    return [name for name in names if state.has_subject(name, deleted=True)]


def check(
    state: RegistryState,
    formats: FormatCatalog,
    subject: str,
    version: int | None,
    request: SchemaRequest,
    *,
    normalize: bool,
) -> list[str]:
    """Why a schema does not fit a version, or as the level says with None. Raises RegistryError."""
    if version is None:
        earlier = state.versions(subject, deleted=False)
    else:
        found = state.version(subject, version, deleted=False)
        if found is None and version != LATEST:
            raise version_not_found(version)
        earlier = () if found is None else (found,)
    content, schema = canonical(state, formats, subject, request.content, normalize=normalize)
    return _problems(state, formats, state.level_in_scope(subject), content, schema, earlier)


def _problems(
    state: RegistryState,
    formats: FormatCatalog,
    level: CompatibilityLevel,
    content: SchemaContent,
    schema: ParsedSchema,
    versions: tuple[SubjectVersion, ...],
) -> list[str]:
    earlier = [
        Earlier(v.version, v.content.schema_type, partial(parsed_version, state, formats, v))
        for v in versions
    ]
    return incompatibilities(level, content.schema_type, schema, earlier)
