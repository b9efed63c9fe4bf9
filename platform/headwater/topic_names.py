"""What a topic may be called, and topics whose names mean something to Kafka."""

from __future__ import annotations

import re

NAME_CHARS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

OFFSETS_TOPIC = "__consumer_offsets"
"""What groups commit, and who their members are."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})
"""Coordinators alone write to them. Which partition a group or transaction belongs to follows from
how many there are."""
KRAFT_TOPIC = "__cluster_metadata"
"""Kafka's own log of its metadata: clients and tools take a topic of this name for that."""


def fault_of(topic: str) -> str:
    """What is wrong with the name, by Kafka's rule; empty when nothing is."""
    if not topic:
        return "the topic's name is empty"
    if topic in (".", ".."):
        return f"a topic cannot be named {topic!r}"
    if len(topic) > NAME_CHARS_MAX:
        return f"the topic's name has {len(topic)} characters; {NAME_CHARS_MAX} are allowed"
    if not _LEGAL.match(topic):
        return f"topic {topic!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return ""


def is_legal_name(topic: str) -> bool:
    """Kafka's rule for topic names."""
    return not fault_of(topic)
