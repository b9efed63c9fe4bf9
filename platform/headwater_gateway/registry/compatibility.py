"""Whether a new schema fits the earlier versions of its subject, by level (Confluent's
`CompatibilityChecker`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater_gateway.registry.formats.port import ParsedSchema
from headwater_gateway.registry.values import CompatibilityLevel

OLD, NEW = "old", "new"


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier version; it is parsed when it is compared."""

    version: int
    schema_type: str
    parse: Callable[[], ParsedSchema]


def incompatibilities(
    level: CompatibilityLevel, schema_type: str, new: ParsedSchema, earlier: Sequence[Earlier]
) -> list[str]:
    """Messages that say what does not fit, as Confluent's `verbose=true` has them; empty: it fits.
    `earlier` ascending; the newest version that does not fit is named, and no other one."""
    if level is CompatibilityLevel.NONE:
        return []
    compared = earlier if level.is_transitive else earlier[-1:]
    for version in reversed(compared):
        messages = _against(level, schema_type, new, version)
        if messages:
            return [*messages, f"{{validateFields: 'false', compatibility: '{level.value}'}}"]
    return []


def _against(
    level: CompatibilityLevel, schema_type: str, new: ParsedSchema, version: Earlier
) -> list[str]:
    if version.schema_type != schema_type:
        said = f"the {OLD} schema is {version.schema_type}, the {NEW} one {schema_type}"
        return [
            f"{{errorType:'SCHEMA_TYPE_CHANGED', description:\"{said}\"}}",
            f"{{oldSchemaVersion: {version.version}}}",
        ]
    old = version.parse()
    messages = []
    if level.reads_old:
        messages += [p.message(NEW, OLD) for p in new.problems_reading(old)]
    if level.read_by_old:
        messages += [p.message(OLD, NEW) for p in old.problems_reading(new)]
    if not messages:
        return []
    return [
        *dict.fromkeys(messages),
        f"{{oldSchemaVersion: {version.version}}}",
        f"{{oldSchema: '{old.text}'}}",
    ]
