"""The registry's values: a schema, its version under a subject, levels and modes. Immutable."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
SCHEMA_TYPES = (JSON, PROTOBUF, AVRO)
LATEST = -1
VERSION_MAX = 2**31 - 1

Document = Mapping[str, Any]
"""A JSON object that the registry keeps and does not read: metadata, rule sets."""


class CompatibilityLevel(Enum):
    """What a new version must be able to do with the data of earlier ones, and they with its."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def reads_old(self) -> bool:
        """The new schema must read what earlier ones wrote."""
        return self.name.startswith(("BACKWARD", "FULL"))

    @property
    def read_by_old(self) -> bool:
        """Earlier schemas must read what the new one writes."""
        return self.name.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        """It holds against all earlier versions, not against the last one alone."""
        return self.name.endswith("_TRANSITIVE")


class Mode(Enum):
    """What may be done with a subject."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def is_read_only(self) -> bool:
        """Nothing may be registered or deleted."""
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)

    @property
    def takes_ids(self) -> bool:
        """Schemas come with their ids, as from another registry."""
        return self in (Mode.IMPORT, Mode.FORWARD)


@dataclass(frozen=True, slots=True)
class Reference:
    """`name` is how the schema's text refers to it: a type, a file, a URL."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class SchemaContent:
    """What makes two schemas one: text, references, metadata, rules. One id per content."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Document | None = None
    rule_set: Document | None = None

    @cached_property
    def guid(self) -> str:
        """The MD5 of the content as a UUID, as Confluent's registry counts it."""
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for reference in self.references:
            digest.update(reference.name.encode() + reference.subject.encode())
            digest.update(reference.version.to_bytes(4, "big", signed=True))
        if self.metadata is not None:
            digest.update(b"\x01")
            for text in _metadata_texts(self.metadata):
                digest.update(text.encode())
        if self.rule_set is not None:
            digest.update(b"\x01" + json.dumps(self.rule_set, sort_keys=True).encode())
        return str(uuid.UUID(bytes=digest.digest()))

    def __hash__(self) -> int:
        return hash((self.schema_type, self.text, self.references))


def _metadata_texts(metadata: Document) -> list[str]:
    """Tags, properties and sensitive keys in the order in which the digest takes them."""
    texts: list[str] = []
    for key, tags in sorted((metadata.get("tags") or {}).items()):
        texts += [key, *sorted(tags)]
    for key, value in sorted((metadata.get("properties") or {}).items()):
        texts += [key, value]
    return [*texts, *sorted(metadata.get("sensitive") or ())]


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    content: SchemaContent
    is_deleted: bool = False
    """Deleted softly: listed on request only, and still found by its id."""
