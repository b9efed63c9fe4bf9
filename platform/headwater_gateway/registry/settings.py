"""Configs and modes: of all, of a context, of a subject (`updateConfig`, `setMode`)."""

from __future__ import annotations

from headwater_gateway.registry.decision import Decision
from headwater_gateway.registry.errors import (
    INVALID_MODE,
    compatibility_not_configured,
    invalid_subject,
    mode_not_configured,
    not_permitted,
    reference_exists,
    subject_not_found,
    unprocessable,
)
from headwater_gateway.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
)
from headwater_gateway.registry.state import RegistryState
from headwater_gateway.registry.subjects import GLOBAL, is_valid_subject
from headwater_gateway.registry.values import Document, Mode

PREFIX_KEYS = {"compatibilityLevel": "compatibility"}
"""The level has another name in the body of a change than in a reply to a question."""


def config_of(state: RegistryState, subject: str, *, in_scope: bool) -> Document:
    """The config of a subject. Raises RegistryError (40408)."""
    found = state.config_in_scope(subject) if in_scope else state.config(subject)
    if found is None:
        raise compatibility_not_configured(subject)
    return found


def set_config(state: RegistryState, subject: str, config: Document) -> Decision:
    """Set the given keys, keep the others; the reply is what was given."""
    if not is_valid_subject(subject, may_be_context=True):
        raise invalid_subject(subject)
    before = state.own_configs().get(subject) or {}
    after = {**before, **config}
    reply = {PREFIX_KEYS.get(key, key): value for key, value in config.items()}
    return Decision(reply, (ConfigRecord(subject, after),))


def delete_config(state: RegistryState, subject: str) -> Decision:
    """Back to the config above; the reply is the old one. Raises RegistryError (40401)."""
    before = state.config(subject)
    if before is None:
        raise subject_not_found(subject)
    return Decision(before, (ConfigRecord(subject, None),))


def mode_of(state: RegistryState, subject: str, *, in_scope: bool) -> Document:
    """The mode of a subject. Raises RegistryError (40409)."""
    found = state.mode_in_scope(subject) if in_scope else state.mode(subject)
    if found is None:
        raise mode_not_configured(subject)
    return {"mode": found.value}


def set_mode(state: RegistryState, subject: str, mode: Mode, *, force: bool) -> Decision:
    """The reply is what was given. IMPORT needs a scope without schemas, or `force`."""
    if not is_valid_subject(subject, may_be_context=True):
        raise invalid_subject(subject)
    if mode is Mode.FORWARD and subject != GLOBAL:
        raise unprocessable(INVALID_MODE, "Forward mode only supported on global level")
    records: list[Record] = []
    if mode is Mode.IMPORT and state.mode_in_scope(subject) is not Mode.IMPORT and not force:
        records += _cleared(state, subject)
    return Decision({"mode": mode.value}, (*records, ModeRecord(subject, mode.value)))


def _cleared(state: RegistryState, subject: str) -> list[Record]:
    """What is left of deleted versions goes, so that any id may come."""
    if any(state.in_scope(subject, deleted=False)):
        raise not_permitted("Cannot import since found existing subjects")
    left = list(state.in_scope(subject, deleted=True))
    for version in left:
        for referrer in state.referrers(version.subject, version.version, deleted=True):
            if referrer not in left:
                raise reference_exists(version.subject, version.version)
    if not left:
        return [ClearSubjectRecord(subject)]
    gone: list[Record] = [SchemaRecord(v.subject, v.version, None) for v in left]
    return [NoopRecord(state.max_ids()), *gone, ClearSubjectRecord(subject)]


def delete_mode(state: RegistryState, subject: str) -> Decision:
    """Back to the mode above; the reply is the old one. Raises RegistryError (40401)."""
    before = state.mode(subject)
    if before is None:
        raise subject_not_found(subject)
    return Decision({"mode": before.value}, (ModeRecord(subject, None),))
