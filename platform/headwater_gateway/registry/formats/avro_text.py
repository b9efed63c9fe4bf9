"""The canonical text of an Avro schema: as `Schema.toString` of Avro's Java library writes it.

Two texts with other white space, key order or spelling of names are then one schema, one id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
_SCHEMA_KEYS = (
    "type", "name", "namespace", "doc", "fields", "symbols", "size", "items", "values", "default",
    "aliases",
)  # fmt: skip
"""Keys of a schema with a meaning of Avro's, in the order of its writer."""
_FIELD_KEYS = ("name", "type", "doc", "default", "order", "aliases")


def canonical_avro(document: Any, *, sort_properties: bool = False) -> str:
    """The text of a schema given as JSON, which must be valid. `sort_properties`: normalized."""
    return json.dumps(
        _schema(document, "", sort_properties), separators=(",", ":"), ensure_ascii=False
    )


def _schema(node: Any, enclosing: str, sort: bool) -> Any:
    if isinstance(node, str):
        return node if node in PRIMITIVES else _relative(node, enclosing)
    if isinstance(node, list):
        return [_schema(branch, enclosing, sort) for branch in node]
    kind = node["type"]
    if not isinstance(kind, str):
        return _schema(kind, enclosing, sort)  # {"type": {...}}: the inner one
    if kind in PRIMITIVES and len(node) == 1:
        return kind
    if kind in NAMED:
        return _named(node, kind, enclosing, sort)
    if kind == "array":
        return _in_order({**node, "items": _schema(node["items"], enclosing, sort)}, sort)
    if kind == "map":
        return _in_order({**node, "values": _schema(node["values"], enclosing, sort)}, sort)
    if kind not in PRIMITIVES:
        return _relative(kind, enclosing)
    return _in_order(node, sort)


def _named(node: Mapping[str, Any], kind: str, enclosing: str, sort: bool) -> dict[str, Any]:
    space, name = _full_name(node["name"], node.get("namespace"), enclosing)
    found = {**node, "name": name}
    found.pop("namespace", None)
    if space != enclosing:
        found["namespace"] = space
    if kind in ("record", "error"):
        found["fields"] = [_field(f, space, sort) for f in node["fields"]]
    return _in_order(found, sort)


def _field(node: Mapping[str, Any], enclosing: str, sort: bool) -> dict[str, Any]:
    found = {**node, "type": _schema(node["type"], enclosing, sort)}
    if found.get("order") == "ascending":
        del found["order"]
    return _ordered(found, _FIELD_KEYS, sort)


def _in_order(node: Mapping[str, Any], sort: bool) -> dict[str, Any]:
    return _ordered(node, _SCHEMA_KEYS, sort)


def _ordered(node: Mapping[str, Any], first: tuple[str, ...], sort: bool) -> dict[str, Any]:
    rest = [key for key in node if key not in first]
    return {key: node[key] for key in (*first, *(sorted(rest) if sort else rest)) if key in node}


def _full_name(name: str, space: str | None, enclosing: str) -> tuple[str, str]:
    """Namespace and simple name."""
    if "." in name:
        space, _, name = name.rpartition(".")
    return (enclosing if space is None else space), name


def _relative(name: str, enclosing: str) -> str:
    """A name as written inside a namespace."""
    space, _, simple = name.rpartition(".")
    return simple if space == enclosing else name
