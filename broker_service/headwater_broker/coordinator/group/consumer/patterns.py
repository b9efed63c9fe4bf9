"""Subscriptions by pattern (KIP-848): when they are resolved, and what comes of it. Pure.

Patterns are resolved beside the loop; the answer comes back as a command. As in Kafka: every ten
seconds at most while topics come and go, and every ten minutes for what changed in rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater_broker.coordinator.common.shard import Now
from headwater_broker.coordinator.group.consumer.change import Change
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat, MayDescribe
from headwater_broker.coordinator.group.consumer.regex import resolve_patterns, validate_pattern
from headwater_broker.coordinator.group.consumer.subscriptions import ResolvedRegex, Topics

APART_MS = 10_000
"""Topics that come and go have the patterns resolved anew no sooner than this."""


@dataclass(frozen=True, slots=True)
class RegexJob:
    """Patterns to resolve. `run` may be called in another thread: nothing here changes."""

    group_id: str
    patterns: frozenset[str]
    topics: tuple[str, ...]
    may_describe: MayDescribe
    """Of the member whose heartbeat caused it: others' topics are left out."""

    def run(self) -> dict[str, frozenset[str]]:
        """The topics that each pattern stands for, whoever may see them."""
        return resolve_patterns(self.patterns, self.topics)


SubmitRegexes = Callable[[RegexJob], None]
"""Has a job run beside the loop, and its answer brought back to the shard."""


class Patterns:
    """The rules over groups handed in."""

    def __init__(self, topics: Topics, submit: SubmitRegexes | None, refresh_ms: int) -> None:
        """`submit`: None: patterns stay unresolved."""
        self._topics = topics
        self._submit = submit
        self._refresh_ms = refresh_ms

    @staticmethod
    def check(request: Heartbeat) -> None:
        """Raises INVALID_REGULAR_EXPRESSION."""
        if request.regex:
            validate_pattern(request.regex)

    def watch(self, change: Change, request: Heartbeat, now: Now) -> None:
        """Have the group's patterns resolved if one never was, or if it is time again."""
        group = change.group
        patterns = _patterns(change)
        if not patterns or group.is_resolving or self._submit is None:
            return
        is_missing = not patterns <= change.regexes.keys()
        if not is_missing and now.steady_ms < group.regexes_due_ms:
            return
        group.is_resolving = True
        group.regexes_due_ms = now.steady_ms + self._refresh_ms
        names = tuple(self._topics.names())
        self._submit(RegexJob(group.group_id, patterns, names, request.may_describe))

    def resolved(self, change: Change, found: Mapping[str, frozenset[str]], now: Now) -> bool:
        """Write what changed. True: topics of the group changed, so its epoch rises."""
        group = change.group
        group.is_resolving = False
        group.resolved_at_ms = now.steady_ms
        group.regexes_due_ms = now.steady_ms + self._refresh_ms
        patterns = _patterns(change)
        if not patterns <= found.keys():
            group.regexes_due_ms = now.steady_ms  # one came meanwhile
        version = 1 + max((row.version for row in group.regexes.values()), default=0)
        anew = {
            pattern: ResolvedRegex(topics, version, now.wall_ms)
            for pattern, topics in found.items()
            if pattern in patterns
            and (pattern not in group.regexes or group.regexes[pattern].topics != topics)
        }
        before = change.subscribed()
        change.put_regexes(anew)
        return change.subscribed() != before

    @staticmethod
    def topics_came_or_went(group: ConsumerGroup) -> None:
        """A topic was created or deleted."""
        if group.regexes:
            group.regexes_due_ms = min(group.regexes_due_ms, group.resolved_at_ms + APART_MS)


def _patterns(change: Change) -> frozenset[str]:
    return frozenset(m.regex for m in change.members.values() if m.regex is not None)
