"""Request bodies and parameters as values, with Confluent's errors for wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater_gateway.registry.errors import (
    INVALID_COMPATIBILITY_LEVEL,
    INVALID_MODE,
    RegistryError,
    invalid_version,
    unprocessable,
)
from headwater_gateway.registry.values import (
    AVRO,
    LATEST,
    VERSION_MAX,
    CompatibilityLevel,
    Document,
    Mode,
    Reference,
    SchemaContent,
)

UNPROCESSABLE = 422
DIGITS_MAX = 10
LEVEL_KEYS = ("compatibility", "compatibilityLevel")
LEVELS = (
    "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"
)
MODES = "READWRITE, READONLY, READONLY_OVERRIDE, IMPORT and FORWARD"
CONFIG_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "alias": str,
    "normalize": bool,
    "validateFields": bool,
    "validateRules": bool,
    "compatibilityGroup": str,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}
"""Keys of a config beside the level."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema to register, to look up, or to check. `version` 0 and `schema_id` -1: not given."""

    content: SchemaContent
    version: int = 0
    schema_id: int = -1


def json_object(body: bytes) -> dict[str, Any]:
    """The body of a request. Raises RegistryError."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, 400, f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise unprocessable(UNPROCESSABLE, "the body is not a JSON object")
    if not is_unicode(document):
        raise unprocessable(UNPROCESSABLE, "the body has half of a surrogate pair: it is no text")
    return document


def text_of(body: bytes) -> str:
    """A body that is a schema's text. Raises RegistryError."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise unprocessable(UNPROCESSABLE, "the body is not UTF-8") from error


def is_unicode(document: Any) -> bool:
    """False for JSON with half of a surrogate pair, which no encoding of text can hold."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    except RecursionError as error:
        raise RegistryError(400, 400, "the body is nested too deeply") from error
    return True


def schema_request(document: Mapping[str, Any]) -> SchemaRequest:
    """The request of a body. Raises RegistryError."""
    text = _of(document, "schema", str, "")
    if not text.strip():
        raise unprocessable(42201, "Empty schema")
    content = SchemaContent(
        _of(document, "schemaType", str, AVRO) or AVRO,
        text,
        tuple(_reference(r) for r in _of(document, "references", list, [])),
        _of(document, "metadata", dict, None),
        _of(document, "ruleSet", dict, None),
    )
    version, schema_id = _of(document, "version", int, 0), _of(document, "id", int, -1)
    return SchemaRequest(content, max(version, 0), schema_id)


def _of(document: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise unprocessable(UNPROCESSABLE, f"{key} is of type {type(value).__name__}")
    if isinstance(value, int) and abs(value) > VERSION_MAX:
        raise unprocessable(UNPROCESSABLE, f"{key} is beyond {VERSION_MAX}")
    return value


def _reference(given: Any) -> Reference:
    if not isinstance(given, dict):
        raise unprocessable(UNPROCESSABLE, "a reference is not a JSON object")
    name, subject = _of(given, "name", str, ""), _of(given, "subject", str, "")
    version = _of(given, "version", int, 0)
    if not name or not subject:
        raise unprocessable(UNPROCESSABLE, "a reference lacks its name or its subject")
    return Reference(name, subject, version)


def is_small_number(word: str) -> bool:
    """True for ASCII digits, not more than a number of 32 bits may have: `int` takes them."""
    return word.isascii() and word.isdigit() and len(word) <= DIGITS_MAX


def version_number(text: str) -> int:
    """A version of a path: from 1 on, or LATEST. Raises RegistryError."""
    word = text.strip()
    if word.lower() == "latest" or word == "-1":
        return LATEST
    if not is_small_number(word) or not 1 <= int(word) <= VERSION_MAX:
        raise invalid_version(text[:100])
    return int(word)


def config_request(document: Mapping[str, Any]) -> Document:
    """The config to set, as it is stored. Raises RegistryError (42203)."""
    config: dict[str, Any] = {}
    for key in LEVEL_KEYS:
        if document.get(key) is not None:
            config["compatibilityLevel"] = _level(document[key]).value
    for key, kind in CONFIG_KINDS.items():
        value = document.get(key)
        if value is None:
            continue
        if not isinstance(value, kind):
            raise unprocessable(UNPROCESSABLE, f"{key} is of type {type(value).__name__}")
        config[key] = value
    return config


def _level(word: Any) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(str(word).upper())
    except ValueError as error:
        raise unprocessable(
            INVALID_COMPATIBILITY_LEVEL,
            f"Invalid compatibility level. Valid values are {LEVELS}",
        ) from error


def mode_request(document: Mapping[str, Any]) -> Mode:
    """The mode to set. Raises RegistryError (42204)."""
    try:
        return Mode(str(document.get("mode")).upper())
    except ValueError as error:
        raise unprocessable(INVALID_MODE, f"Invalid mode. Valid values are {MODES}.") from error
