"""JSON Schema of any draft as the draft 4 that the subschema check knows, and what it cannot. Pure.

The check ignores keywords that it does not know: they are found here. In what was written, a
keyword more only makes the set of documents smaller, so there it may go. In what is to be read it
may not: only where both schemas have the same one at the same place.
"""

from __future__ import annotations

from typing import Any

UNDECIDED = (
    "allOf", "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames",
    "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems",
    "unevaluatedProperties", "prefixItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords that restrict documents, and that the check does not decide."""
_INDEPENDENT = frozenset(UNDECIDED) - {"unevaluatedItems", "unevaluatedProperties", "prefixItems"}
_EQUAL_DROPPED = (*sorted(_INDEPENDENT), "pattern", "format")
"""Keywords that say nothing of the schema's other keywords: equal ones on both sides may go."""
_GROUPS = (("if", "then", "else"), ("contains", "minContains", "maxContains"))
PATTERN_MAX = 256
"""Characters of a pattern: the check makes an automaton of it, which may be large."""
_DATA_KEYS = frozenset({"enum", "const", "default", "examples"})
_DROPPED = frozenset({"$schema", "$id", "id", "default", "examples", "title", "description"})
"""Keywords that restrict no document."""
_DEFINITIONS = frozenset({"definitions", "$defs", "headwater:references"})


def without_equal(one: Any, other: Any) -> tuple[Any, Any]:
    """Both schemas without the keywords that are equal in both, here and in the same properties and
    items: A and K is within B and K if A is within B."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return one, other
    if "$ref" in one or "$ref" in other:
        return one, other
    equal = {key for key in _EQUAL_DROPPED if key in one and one[key] == other.get(key)}
    for group in _GROUPS:
        if any(one.get(key) != other.get(key) for key in group):
            equal -= set(group)
    left = {k: v for k, v in one.items() if k not in equal}
    right = {k: v for k, v in other.items() if k not in equal}
    for key in ("items", "additionalProperties"):
        if isinstance(left.get(key), dict) and isinstance(right.get(key), dict):
            left[key], right[key] = without_equal(left[key], right[key])
    if isinstance(left.get("properties"), dict) and isinstance(right.get("properties"), dict):
        pairs = {
            name: without_equal(schema, right["properties"][name])
            for name, schema in left["properties"].items()
            if name in right["properties"]
        }
        left["properties"] = {**left["properties"], **{n: p[0] for n, p in pairs.items()}}
        right["properties"] = {**right["properties"], **{n: p[1] for n, p in pairs.items()}}
    return left, right


def undecided_in(node: Any, path: str = "#") -> list[str]:
    """The places of keywords that the check would not decide."""
    if isinstance(node, list):
        return [p for n, item in enumerate(node) for p in undecided_in(item, f"{path}/{n}")]
    if not isinstance(node, dict):
        return []
    found = [f"{path}/{key}" for key in UNDECIDED if key in node]
    if len(str(node.get("pattern", ""))) > PATTERN_MAX:
        found.append(f"{path}/pattern")
    for key, value in node.items():
        if key in _DATA_KEYS or key in UNDECIDED:
            continue
        if key in ("properties", "patternProperties") or key in _DEFINITIONS:
            rows = value.items() if isinstance(value, dict) else ()
            found += [p for name, s in rows for p in undecided_in(s, f"{path}/{key}/{name}")]
        else:
            found += undecided_in(value, f"{path}/{key}")
    return found


def as_draft_4(node: Any, *, keep_undecided: bool) -> Any:
    """The schema with draft 4's keywords only. Without `keep_undecided`, keywords that the check
    does not know are dropped, but not below `not`, where fewer ones are fewer documents."""
    if node is True:
        return {}
    if node is False:
        return {"not": {}}
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DROPPED or (key in UNDECIDED and not keep_undecided):
            continue
        found[key] = _value(key, value, keep_undecided)
    return _bounds(found, node)


def _value(key: str, value: Any, keep: bool) -> Any:
    if key in _DATA_KEYS:
        return value
    if key == "not":
        return as_draft_4(value, keep_undecided=True)
    if key in ("properties", "patternProperties") or key in _DEFINITIONS:
        if isinstance(value, dict):
            return {name: as_draft_4(s, keep_undecided=keep) for name, s in value.items()}
        return value
    if key in ("additionalProperties", "additionalItems") and isinstance(value, bool):
        return value
    if key in ("items", "additionalProperties", "additionalItems"):
        return (
            [as_draft_4(s, keep_undecided=keep) for s in value]
            if isinstance(value, list)
            else as_draft_4(value, keep_undecided=keep)
        )
    if key in ("anyOf", "oneOf", "allOf") and isinstance(value, list):
        return [as_draft_4(s, keep_undecided=keep) for s in value]
    return value


def _bounds(found: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """`const` and the numeric `exclusive...` as draft 4 writes them."""
    if "const" in node:
        del found["const"]
        found["enum"] = [node["const"]]
    for bound, exclusive, pick in (
        ("minimum", "exclusiveMinimum", max),
        ("maximum", "exclusiveMaximum", min),
    ):
        limit = node.get(exclusive)
        if isinstance(limit, bool) or limit is None:
            continue
        other = node.get(bound)
        if other is None or pick(limit, other) == limit:
            found[bound], found[exclusive] = limit, True
        else:
            del found[exclusive]
    return found


def is_self_contained(node: Any) -> bool:
    """False for a `$ref` to elsewhere, also in data, where it means nothing: the library of the
    check would fetch it."""
    if isinstance(node, list):
        return all(is_self_contained(item) for item in node)
    if not isinstance(node, dict):
        return True
    ref = node.get("$ref")
    is_local = not isinstance(ref, str) or ref.startswith("#")
    return is_local and all(is_self_contained(value) for value in node.values())


_LONG = frozenset({"pattern", "patternProperties", "anyOf", "oneOf", "not"})


def may_take_long(node: Any) -> bool:
    """True for a schema with patterns or choices."""
    if isinstance(node, list):
        return any(may_take_long(item) for item in node)
    if not isinstance(node, dict):
        return False
    return not _LONG.isdisjoint(node) or any(may_take_long(v) for v in node.values())
