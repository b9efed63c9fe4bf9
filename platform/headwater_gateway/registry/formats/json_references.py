"""JSON Schema's `$ref`s to other registered schemas, put into one document. Pure.

Nothing is ever fetched: a `$ref` that is neither local nor the name of a reference is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

from headwater_gateway.registry.formats.port import SchemaSyntaxError

BUNDLE = "headwater:references"
"""The key under which the bundled document keeps the other ones."""
_DATA_KEYS = frozenset({"enum", "const", "default", "examples"})
"""Keys whose values are data, in which `$ref` means nothing."""
_MAPS = frozenset(
    {"properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"}
)
"""Keys whose values are objects from names to schemas."""


def bundled(document: Any, others: Mapping[str, Any]) -> Any:
    """The document with the referred ones inside, every `$ref` local. Raises SchemaSyntaxError."""
    places = {name: f"#/{BUNDLE}/{number}" for number, name in enumerate(others)}
    kept = {
        str(number): _rewritten(other, _Base(places[name], _id_of(other), places))
        for number, (name, other) in enumerate(others.items())
    }
    root = _rewritten(document, _Base("#", _id_of(document), places))
    return {**root, BUNDLE: kept} if isinstance(root, dict) and kept else root


class _Base:
    """Where a document is in the bundle, and how its references are found."""

    def __init__(self, place: str, own_id: str, places: Mapping[str, str]) -> None:
        self._place = place
        self._own_id = own_id
        self._places = places

    def local(self, ref: str) -> str:
        """The `$ref` inside the bundle."""
        base, _, pointer = ref.partition("#")
        place = self._place if base in ("", self._own_id) else self._found(base)
        if pointer and not pointer.startswith("/"):
            raise SchemaSyntaxError(f"$ref {ref!r}: anchors are not known here, give a pointer")
        return place + pointer if place != "#" else f"#{pointer}"

    def _found(self, base: str) -> str:
        for name in (base, urljoin(self._own_id, base)):
            if name in self._places:
                return self._places[name]
        raise SchemaSyntaxError(f"$ref {base!r} is the name of none of the schema's references")


def _id_of(document: Any) -> str:
    found = document.get("$id") or document.get("id") if isinstance(document, dict) else None
    return found.rstrip("#") if isinstance(found, str) else ""


def _rewritten(node: Any, base: _Base) -> Any:
    if isinstance(node, list):
        return [_rewritten(item, base) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: _rewritten_value(key, value, base) for key, value in node.items()}


def _rewritten_value(key: str, value: Any, base: _Base) -> Any:
    if key == "$ref" and isinstance(value, str):
        return base.local(value)
    if key in _MAPS and isinstance(value, dict):  # of any names, such as `enum`
        return {name: _rewritten(schema, base) for name, schema in value.items()}
    return value if key in _DATA_KEYS else _rewritten(value, base)
