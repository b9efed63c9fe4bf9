"""Kafka's rule for topic names, and the names of internal topics."""

from __future__ import annotations

import re

NAME_CHARS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")

OFFSETS_TOPIC = "__consumer_offsets"
"""Committed offsets and the metadata of groups."""
TRANSACTION_TOPIC = "__transaction_state"
"""The states of transactional ids."""
SHARE_STATE_TOPIC = "__share_group_state"
"""The delivery states of share partitions (KIP-932)."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})
"""Only coordinators write to them. The partition of a group, a transactional id or a share
partition depends on the number of partitions, so they cannot grow."""
KRAFT_TOPIC = "__cluster_metadata"
"""The metadata log of KRaft. Clients and tools treat a topic of this name specially."""


def topic_name_fault(topic: str) -> str:
    """Why a topic cannot have this name, by Kafka's rule; empty if it can."""
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
    """Whether a topic can have this name."""
    return not topic_name_fault(topic)
