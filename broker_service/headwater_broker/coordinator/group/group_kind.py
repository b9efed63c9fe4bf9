"""The kinds of groups. A group id has one kind at a time."""

from __future__ import annotations

from enum import Enum


class GroupKind(Enum):
    """Kafka's names of group types, as ListGroups shows them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
