"""The status of tiering as brokers show it: JSON in the metadata of the tier group's offsets."""

from __future__ import annotations

import json
from typing import Any

TIER_GROUP = "__headwater_tier"
"""The group of the tiering services; its committed offsets are the tiered ends."""
STATUS_PARTITION = 0
"""The metadata of this partition's offset is the topic's status."""
STATUS_FORMAT = 1


def status_fields(metadata: str | None) -> dict[str, Any] | None:
    """The status in an offset's metadata as plain values; None for other text and formats."""
    try:
        document: Any = json.loads(metadata or "")
    except ValueError:
        return None
    if not isinstance(document, dict) or document.pop("format", None) != STATUS_FORMAT:
        return None
    return document
