"""The records of `_schemas`, as Confluent's registry writes them: JSON keys and values.

Either registry can go on with the other's topic. One addition: the value of the NOOP record, which
Confluent's ignores, keeps the highest id given in each context, so that no id is given again after
its schema was deleted for good and compacted away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater_gateway.registry.subjects import GLOBAL
from headwater_gateway.registry.values import (
    AVRO,
    Document,
    Reference,
    SchemaContent,
    SubjectVersion,
)

TENANT = "default"
MAX_IDS = "maxIds"


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A version was registered or changed; None: it is gone for good."""

    subject: str
    version: int
    value: SubjectVersion | None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The config of a subject, a context, or of all (GLOBAL); None: it was deleted."""

    subject: str
    value: Document | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """The mode of a subject, a context, or of all (GLOBAL); None: it was deleted."""

    subject: str
    mode: str | None


@dataclass(frozen=True, slots=True)
class DeleteSubjectRecord:
    """All versions up to this one are deleted softly."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ClearSubjectRecord:
    """What was deleted softly in the subject or context is gone."""

    subject: str


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """A context exists; `is_there` False: it was deleted."""

    context: str
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class NoopRecord:
    """The highest ids by context prefix."""

    max_ids: Mapping[str, int]


Record = (
    SchemaRecord
    | ConfigRecord
    | ModeRecord
    | DeleteSubjectRecord
    | ClearSubjectRecord
    | ContextRecord
    | NoopRecord
)


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of the Kafka record; None: a tombstone."""
    key, value = _documents(record)
    return _json(key), None if value is None else _json(value)


def decode_record(key: bytes | None, value: bytes | None) -> Record | None:
    """The record; None for one of a kind that is not kept here. Raises ValueError for a key or
    value that is not of this format."""
    if key is None:
        return None
    try:
        document = json.loads(key)
        given = None if value is None else json.loads(value)
        reader = _READERS.get(document["keytype"])
        return None if reader is None else reader(document, given)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{error!r} in {key[:200]!r}") from error


def content_document(content: SchemaContent) -> dict[str, Any]:
    """Type, references, metadata and rules as JSON: those that are not the default."""
    document: dict[str, Any] = {}
    if content.schema_type != AVRO:
        document["schemaType"] = content.schema_type
    if content.references:
        document["references"] = [r.document() for r in content.references]
    if content.metadata is not None:
        document["metadata"] = content.metadata
    if content.rule_set is not None:
        document["ruleSet"] = content.rule_set
    return document


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _documents(record: Record) -> tuple[dict[str, Any], dict[str, Any] | None]:
    match record:
        case SchemaRecord():
            key = _key("SCHEMA", record.subject, 1, version=record.version)
            return key, None if record.value is None else _schema_value(record.value)
        case ConfigRecord():
            value = None if record.value is None else {**_named(record.subject), **record.value}
            return _key("CONFIG", record.subject, 0), value
        case ModeRecord():
            mode = None if record.mode is None else {**_named(record.subject), "mode": record.mode}
            return _key("MODE", record.subject, 0), mode
        case DeleteSubjectRecord():
            deleted = {"subject": record.subject, "version": record.version}
            return _key("DELETE_SUBJECT", record.subject, 0), deleted
        case ClearSubjectRecord():
            return _key("CLEAR_SUBJECT", record.subject, 0), _named(record.subject)
        case ContextRecord():
            named = {"tenant": TENANT, "context": record.context}
            return {"keytype": "CONTEXT", **named, "magic": 0}, named if record.is_there else None
        case NoopRecord():
            return {"keytype": "NOOP", "magic": 0}, {MAX_IDS: dict(record.max_ids)}


def _key(keytype: str, subject: str, magic: int, **rest: int) -> dict[str, Any]:
    return {"keytype": keytype, "subject": subject or None, **rest, "magic": magic}


def _named(subject: str) -> dict[str, Any]:
    return {"subject": subject} if subject else {}


def _schema_value(version: SubjectVersion) -> dict[str, Any]:
    return {
        "subject": version.subject,
        "version": version.version,
        "id": version.schema_id,
        **content_document(version.content),
        "schema": version.content.text,
        "deleted": version.is_deleted,
    }


def _read_schema(key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    if value is None:
        return SchemaRecord(key["subject"], key["version"], None)
    content = SchemaContent(
        value.get("schemaType") or AVRO,
        value["schema"],
        tuple(
            Reference(r["name"], r["subject"], r["version"]) for r in value.get("references") or ()
        ),
        value.get("metadata"),
        value.get("ruleSet"),
    )
    version = SubjectVersion(
        value["subject"], value["version"], value["id"], content, bool(value.get("deleted"))
    )
    return SchemaRecord(key["subject"], key["version"], version)


def _read_config(key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    config = None if value is None else {k: v for k, v in value.items() if k != "subject"}
    return ConfigRecord(key.get("subject") or GLOBAL, config)


def _read_mode(key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    return ModeRecord(key.get("subject") or GLOBAL, None if value is None else value["mode"])


def _read_deletion(key: dict[str, Any], value: dict[str, Any] | None) -> Record | None:
    return None if value is None else DeleteSubjectRecord(key["subject"], value["version"])


def _read_clearing(key: dict[str, Any], value: dict[str, Any] | None) -> Record | None:
    return None if value is None else ClearSubjectRecord(key.get("subject") or GLOBAL)


def _read_context(key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    return ContextRecord(key["context"], value is not None)


def _read_noop(_key: dict[str, Any], value: dict[str, Any] | None) -> Record:
    return NoopRecord((value or {}).get(MAX_IDS) or {})


_READERS = {
    "SCHEMA": _read_schema,
    "CONFIG": _read_config,
    "MODE": _read_mode,
    "DELETE_SUBJECT": _read_deletion,
    "CLEAR_SUBJECT": _read_clearing,
    "CONTEXT": _read_context,
    "NOOP": _read_noop,
}
