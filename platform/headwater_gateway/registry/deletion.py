"""Delete versions, subjects and contexts: softly first, then for good."""

from __future__ import annotations

from collections.abc import Iterable

from headwater_gateway.registry.decision import Decision
from headwater_gateway.registry.errors import (
    CONTEXT_NOT_EMPTY,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    unprocessable,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from headwater_gateway.registry.records import (
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
)
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.subjects import DEFAULT_CONTEXT, context_prefix, prefix_of
from headwater_gateway.registry.values import LATEST, SubjectVersion


def delete_version(state: RegistryState, subject: str, number: int, *, permanent: bool) -> Decision:
    """The reply is the number of the version. Raises RegistryError."""
    _check_mode(state, subject)
    version = state.version(subject, number, deleted=True)
    if version is None:
        if not state.has_subject(subject, deleted=True):
            raise subject_not_found(subject)
        raise version_not_found("latest" if number == LATEST else number)
    if version.is_deleted and not permanent:
        raise version_soft_deleted(subject, version.version)
    if not version.is_deleted and permanent:
        raise version_not_soft_deleted(subject, version.version)
    if state.referrers(subject, version.version, deleted=permanent):
        raise reference_exists(subject, version.version)
    if permanent:
        records = _gone(state, [version])
    else:
        gone = SubjectVersion(
            subject, version.version, version.schema_id, version.content, is_deleted=True
        )
        records = (SchemaRecord(subject, version.version, gone),)
    return Decision(version.version, records)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Decision:
    """The reply is the numbers of its versions. Raises RegistryError."""
    _check_mode(state, subject)
    if not state.has_subject(subject, deleted=True):
        raise subject_not_found(subject)
    alive = state.versions(subject, deleted=False)
    if permanent and alive:
        raise subject_not_soft_deleted(subject)
    if not permanent and not alive:
        raise subject_soft_deleted(subject)
    versions = state.versions(subject) if permanent else alive
    for version in versions:
        by_others = (
            r
            for r in state.referrers(subject, version.version, deleted=permanent)
            if r.subject != subject
        )
        if any(by_others):
            raise reference_exists(subject, version.version)
    numbers = [v.version for v in versions]
    if permanent:
        return Decision(numbers, _gone(state, versions))
    return Decision(numbers, (DeleteSubjectRecord(subject, numbers[-1]),))


def delete_context(state: RegistryState, context: str) -> Decision:
    """An empty context; the reply is None. Raises RegistryError."""
    prefix = context_prefix(context)
    if any(prefix_of(s) == prefix for s in state.subjects()) or context == DEFAULT_CONTEXT:
        raise unprocessable(CONTEXT_NOT_EMPTY, f"The specified context '{context}' is not empty.")
    return Decision(None, (ContextRecord(context, is_there=False),))


def _check_mode(state: RegistryState, subject: str) -> None:
    if state.mode_in_scope(subject).is_read_only:
        raise not_permitted(
            f"Subject {subject} in context {prefix_of(subject)} is in read-only mode"
        )


def _gone(state: RegistryState, versions: Iterable[SubjectVersion]) -> tuple[Record, ...]:
    """Tombstones; the highest ids, which no other record may tell any more; and with the last
    version the subject's own config and mode."""
    gone = list(versions)
    subject = gone[0].subject
    records: list[Record] = [NoopRecord(state.max_ids())]
    records += [SchemaRecord(subject, v.version, None) for v in reversed(gone)]
    if len(gone) == len(state.versions(subject)):
        if subject in state.own_configs():
            records.append(ConfigRecord(subject, None))
        if subject in state.own_modes():
            records.append(ModeRecord(subject, None))
    return tuple(records)
