"""The topics and groups that are mirrored, and the bucket of a partition. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

from headwater.client.values import TopicPartition
from headwater.errors import UsageError

ORPHANS_SUFFIX = ".orphans"
NEVER = (r"__.*", r"mm2-.*\.internal", r".*\.checkpoints\.internal", r".*\.orphans")
"""Topics that no pattern selects: internal ones, other mirrors' own, what failbacks put aside."""


class Selection:
    """Names that match a list of regular expressions, or all that match none of a list."""

    def __init__(self, key: str, allow: str | None, deny: str | None, default: str = ".*") -> None:
        """`key` names the property, for messages. Patterns are separated by commas, and match whole
        names. Raises UsageError for a bad pattern, and when both lists are given."""
        if allow is not None and deny is not None:
            raise UsageError(
                f"{key} and {key}.deny are both given: list what is mirrored, or what is not"
            )
        self._is_allow = deny is None
        self._patterns = _compiled(
            key if self._is_allow else f"{key}.deny", (default if allow is None else allow)
            if self._is_allow else deny or "",
        )  # fmt: skip

    def __contains__(self, name: str) -> bool:
        found = any(pattern.fullmatch(name) for pattern in self._patterns)
        return found if self._is_allow else not found


def _compiled(key: str, text: str) -> list[re.Pattern[str]]:
    found = []
    for part in (p.strip() for p in text.split(",")):
        if not part:
            continue
        try:
            found.append(re.compile(part))
        except re.error as error:
            raise UsageError(f"{key}: {part!r} is no regular expression: {error}") from None
    if not found:
        raise UsageError(f"{key} is empty: give names or regular expressions, or leave it out")
    return found


_NEVER = [re.compile(pattern) for pattern in NEVER]


def mirrored_topics(names: Iterable[str], wanted: Selection) -> list[str]:
    """The topics that are mirrored, sorted."""
    return sorted(
        name for name in names if name in wanted and not any(n.fullmatch(name) for n in _NEVER)
    )


def bucket_of(tp: TopicPartition, buckets: int) -> int:
    """The bucket that mirrors a partition. It may never change: the bucket has its position.

    A topic's partitions follow each other through the buckets.
    """
    return (zlib.crc32(tp.topic.encode()) + tp.partition) % buckets
