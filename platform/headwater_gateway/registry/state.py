"""The state in `_schemas`: subjects, ids, configs, modes; `replay` alone changes it (Confluent's
`LookupCache`). A published state is never changed: `copy` comes first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headwater_gateway.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
)
from headwater_gateway.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL,
    beside,
    context_prefix,
    parse_subject,
    prefix_of,
)
from headwater_gateway.registry.values import (
    LATEST,
    CompatibilityLevel,
    Document,
    Mode,
    SubjectVersion,
)

Place = tuple[str, int]
"""A subject and a version; in `ids` a context prefix and an id."""
DEFAULT_CONFIG: Document = {"compatibilityLevel": CompatibilityLevel.BACKWARD.value}


class RegistryState:
    """Everything the registry knows."""

    def __init__(self) -> None:
        self._subjects: dict[str, tuple[SubjectVersion, ...]] = {}
        """The versions of each subject, ascending, the softly deleted ones too."""
        self._configs: dict[str, Document] = {}
        self._modes: dict[str, str] = {}
        self._max_ids: dict[str, int] = {}
        self._contexts: frozenset[str] = frozenset()
        self._ids: dict[Place, tuple[Place, ...]] = {}
        """(context prefix, id) -> the versions with this id."""
        self._contents: dict[tuple[str, str], tuple[Place, ...]] = {}
        """(context prefix, guid) -> the versions with this content."""
        self._referrers: dict[Place, tuple[Place, ...]] = {}

    def copy(self) -> RegistryState:
        """An equal state that may be changed."""
        other = RegistryState()
        other._subjects = self._subjects.copy()
        other._configs = self._configs.copy()
        other._modes = self._modes.copy()
        other._max_ids = self._max_ids.copy()
        other._contexts = self._contexts
        other._ids = self._ids.copy()
        other._contents = self._contents.copy()
        other._referrers = self._referrers.copy()
        return other

    # --- changes ------------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply one record of the topic, in the order of the topic."""
        match record:
            case SchemaRecord():
                self._put(record)
            case ConfigRecord():
                _set(self._configs, record.subject, record.value)
            case ModeRecord():
                _set(self._modes, record.subject, record.mode)
            case DeleteSubjectRecord():
                self._soft_delete(record)
            case ClearSubjectRecord():
                self._clear(record.subject)
            case ContextRecord():
                changed = {record.context}
                self._contexts = (
                    self._contexts | changed if record.is_there else self._contexts - changed
                )
            case NoopRecord():
                for prefix, highest in record.max_ids.items():
                    self._note_id(prefix, highest)

    def _put(self, record: SchemaRecord) -> None:
        old = self.version(record.subject, record.version, deleted=True)
        if old is not None:
            self._unlink(old)
        rest = [v for v in self.versions(record.subject) if v.version != record.version]
        if record.value is not None:
            rest.append(record.value)
            self._link(record.value)
            self._note_id(prefix_of(record.subject), record.value.schema_id)
        if rest:
            self._subjects[record.subject] = tuple(sorted(rest, key=lambda v: v.version))
        else:
            self._subjects.pop(record.subject, None)

    def _note_id(self, prefix: str, schema_id: int) -> None:
        self._max_ids[prefix] = max(schema_id, self._max_ids.get(prefix, 0))

    def _soft_delete(self, record: DeleteSubjectRecord) -> None:
        found = self.versions(record.subject)
        if found:
            self._subjects[record.subject] = tuple(
                _deleted(v) if v.version <= record.version else v for v in found
            )

    def _clear(self, subject: str) -> None:
        for version in list(self.in_scope(subject, deleted=True)):
            if version.is_deleted:
                self._put(SchemaRecord(version.subject, version.version, None))

    def _link(self, version: SubjectVersion) -> None:
        place = (version.subject, version.version)
        for index, key in self._keys(version):
            index[key] = (*index.get(key, ()), place)

    def _unlink(self, version: SubjectVersion) -> None:
        place = (version.subject, version.version)
        for index, key in self._keys(version):
            left = tuple(p for p in index.get(key, ()) if p != place)
            if left:
                index[key] = left
            else:
                index.pop(key, None)

    def _keys(
        self, version: SubjectVersion
    ) -> Iterator[tuple[dict[tuple[str, int], tuple[Place, ...]], tuple[str, int]]]:
        """The indices that have a version, and its key in each."""
        prefix = prefix_of(version.subject)
        yield self._ids, (prefix, version.schema_id)
        yield self._contents, (prefix, version.content.guid)  # type: ignore[misc]
        for r in set(version.content.references):
            yield self._referrers, (beside(version.subject, r.subject), r.version)

    # --- questions ----------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        """Every subject with a version, deleted ones too, sorted."""
        return sorted(self._subjects)

    def versions(self, subject: str, *, deleted: bool = True) -> tuple[SubjectVersion, ...]:
        """The versions of a subject, ascending."""
        found = self._subjects.get(subject, ())
        return found if deleted else tuple(v for v in found if not v.is_deleted)

    def version(self, subject: str, number: int, *, deleted: bool) -> SubjectVersion | None:
        """One version; LATEST: the last one that is not deleted."""
        if number == LATEST:
            alive = self.versions(subject, deleted=False)
            return alive[-1] if alive else None
        for found in self._subjects.get(subject, ()):
            if found.version == number:
                return found if deleted or not found.is_deleted else None
        return None

    def in_scope(self, subject: str, *, deleted: bool) -> Iterator[SubjectVersion]:
        """The versions of a subject, of all subjects of a context, or with GLOBAL of all."""
        for name in self._subjects:
            if subject in (GLOBAL, name) or (
                parse_subject(subject).subject == "" and prefix_of(name) == subject
            ):
                yield from self.versions(name, deleted=deleted)

    def has_subject(self, subject: str, *, deleted: bool) -> bool:
        """True if the subject has a version."""
        return bool(self.versions(subject, deleted=deleted))

    def with_id(self, prefix: str, schema_id: int) -> list[SubjectVersion]:
        """The versions with an id of a context."""
        return self._at(self._ids.get((prefix, schema_id), ()))

    def with_guid(self, prefix: str, guid: str) -> list[SubjectVersion]:
        """The versions of a context with a content."""
        return self._at(self._contents.get((prefix, guid), ()))

    def referrers(self, subject: str, number: int, *, deleted: bool) -> list[SubjectVersion]:
        """The versions whose schemas refer to a version."""
        found = self._at(self._referrers.get((subject, number), ()))
        return [v for v in found if deleted or not v.is_deleted]

    def _at(self, places: Iterable[Place]) -> list[SubjectVersion]:
        found = (self.version(*place, deleted=True) for place in places)
        return [v for v in found if v is not None]

    def max_id(self, prefix: str) -> int:
        """The highest id ever given in a context; 0: none."""
        return self._max_ids.get(prefix, 0)

    def max_ids(self) -> dict[str, int]:
        """The highest ids by context prefix."""
        return dict(self._max_ids)

    def contexts(self) -> list[str]:
        """The default context, and those that have or had a schema."""
        used = {parse_subject(s).context for s in self._subjects}
        return sorted({DEFAULT_CONTEXT} | self._contexts | used)

    def has_context(self, context: str) -> bool:
        """True once a context was written."""
        return context == DEFAULT_CONTEXT or context in self._contexts

    def config(self, subject: str) -> Document | None:
        """The config that was set for exactly this subject, context, or GLOBAL."""
        found = self._configs.get(subject)
        return DEFAULT_CONFIG if found is None and subject == GLOBAL else found

    def own_configs(self) -> Mapping[str, Document]:
        """The configs that were set, by subject, context prefix or GLOBAL."""
        return self._configs

    def own_modes(self) -> Mapping[str, str]:
        """The modes that were set, by subject, context prefix or GLOBAL."""
        return self._modes

    def config_in_scope(self, subject: str) -> Document:
        """The config that holds: of the subject, else of its context, else of all."""
        for scope in _scopes(subject):
            found = self.config(scope)
            if found is not None:
                return found
        return DEFAULT_CONFIG

    def mode(self, subject: str) -> Mode | None:
        """The mode that was set for exactly this subject, context, or GLOBAL."""
        found = self._modes.get(subject)
        if found is None:
            return Mode.READWRITE if subject == GLOBAL else None
        return Mode(found)

    def mode_in_scope(self, subject: str) -> Mode:
        """The mode that holds. READONLY_OVERRIDE of all holds over every subject's own."""
        if self.mode(GLOBAL) is Mode.READONLY_OVERRIDE:
            return Mode.READONLY_OVERRIDE
        found = (self.mode(scope) for scope in _scopes(subject))
        return next((m for m in found if m is not None), Mode.READWRITE)

    def level_in_scope(self, subject: str) -> CompatibilityLevel:
        """The compatibility level that holds."""
        for scope in _scopes(subject):
            level = (self.config(scope) or {}).get("compatibilityLevel")
            if level:
                return CompatibilityLevel(level)
        return CompatibilityLevel.BACKWARD

    def normalizes(self, subject: str) -> bool:
        """True if `normalize` is the rule for the subject."""
        return bool(self.config_in_scope(subject).get("normalize"))


def _scopes(subject: str) -> tuple[str, ...]:
    """A subject, its context, and all."""
    return (subject, context_prefix(parse_subject(subject).context), GLOBAL)


def _deleted(version: SubjectVersion) -> SubjectVersion:
    return SubjectVersion(
        version.subject, version.version, version.schema_id, version.content, is_deleted=True
    )


def _set(rows: dict[str, Any], key: str, value: Any | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value
