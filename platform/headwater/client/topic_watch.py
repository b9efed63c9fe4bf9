"""The topics of a subscription, by name or by pattern, and their numbers of partitions."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.errors import OptionError, kafka_error
from headwater.client.partition_names import topic_name
from headwater.client.serializers.values import Topic
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, KafkaError, UsageError

log = logging.getLogger(__name__)

MISSING_TOPIC_INTERVAL_S = 3.0
"""How often a subscribed topic that does not exist is looked for."""


class TopicWatch:
    """Resolves a subscription against the metadata. On the loop."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._names: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._logged: set[str] = set()

    def subscribe(self, names: Iterable[str], pattern: re.Pattern[str] | None) -> None:
        """Watch these topics, or all that match the pattern."""
        self._names, self._pattern = list(names), pattern
        self._logged = set()

    @property
    def server_pattern(self) -> str | None:
        """The pattern as the coordinator of a group takes it: RE2's, with its flags inside."""
        if self._pattern is None:
            return None
        ignores_case = self._pattern.flags & re.IGNORECASE
        return f"(?i){self._pattern.pattern}" if ignores_case else self._pattern.pattern

    async def refresh(self, others: Iterable[str] = ()) -> None:
        """Fetch the metadata of the topics, and of `others`. Raises NoBrokersAvailableError.

        Topics are created only with `allow_auto_create_topics`, and only those subscribed by name.
        """
        if self._pattern is not None:
            await self._cluster.refresh(None)
            return
        known = self._cluster.cache.topics
        if self._options.allow_auto_create_topics and not known.keys() >= set(self._names):
            await self._cluster.refresh(self._names, auto_create=True)
        await self._cluster.refresh(sorted({*self._names, *others}))
        self._log_missing()

    def _log_missing(self) -> None:
        missing = [t for t in self._names if t not in self._cluster.cache.topics]
        fresh = [t for t in missing if t not in self._logged]
        if fresh:
            log.warning("subscribed topics that do not exist: %s", ", ".join(fresh))
        self._logged = set(missing)

    def topics(self) -> list[str]:
        """The names to subscribe to: as given, or those that match now."""
        if self._pattern is None:
            return self._names
        hide_internal = self._options.exclude_internal_topics
        return sorted(
            t.name
            for t in self._cluster.cache.topics.values()
            if self._pattern.fullmatch(t.name) and not (hide_internal and t.is_internal)
        )

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic -> number of partitions, of those that exist."""
        known = self._cluster.cache.topics
        return {t: len(known[t].partitions) for t in topics if t in known}

    @property
    def has_missing(self) -> bool:
        """True while a topic that was subscribed by name does not exist."""
        return any(t not in self._cluster.cache.topics for t in self._names)

    @property
    def interval_s(self) -> float:
        """How long to wait before the next refresh."""
        longest = self._options.metadata_max_age_ms / 1000
        return min(longest, MISSING_TOPIC_INTERVAL_S) if self.has_missing else longest


class SubscriptionGrowth:
    """The partitions of a subscription without a group, as topics appear, grow and disappear."""

    def __init__(self, cluster: Cluster, watch: TopicWatch, on_change: Callable[[], None]) -> None:
        self._cluster = cluster
        self._watch = watch
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self._known: frozenset[TopicPartition] | None = None
        """None while nothing is subscribed to."""
        self._absent: frozenset[TopicPartition] = frozenset()
        """Partitions that the last periodic refresh did not find."""
        self.is_changed = False

    async def start(self, names: list[str], *, auto_create: bool) -> None:
        """Resolve the subscription and follow it. Raises UnknownTopicOrPartitionError."""
        self.stop()
        for name in names:
            await partition_count(self._cluster, name, auto_create=auto_create)
        await self._watch.refresh()
        self._known = self._found()
        self._task = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
        self._task, self._known, self.is_changed = None, None, False
        self._absent = frozenset()

    def partitions(self) -> frozenset[TopicPartition]:
        """What to read now; `is_changed` is False afterwards."""
        self.is_changed = False
        return self._known or frozenset()

    def _found(self) -> frozenset[TopicPartition]:
        counts = self._watch.counts(self._watch.topics())
        return frozenset(TopicPartition(t, p) for t, count in counts.items() for p in range(count))

    def on_metadata(self) -> None:
        """Add partitions that are new. Called on the loop after each metadata response."""
        if self._known is not None and (found := self._found()) - self._known:
            self._change(self._known | found)

    def _change(self, partitions: frozenset[TopicPartition]) -> None:
        self._known = partitions
        self.is_changed = True
        self._on_change()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._watch.interval_s)
            try:
                await self._watch.refresh()
            except KafkaError as e:
                log.debug("refresh of the subscribed topics: %s", e)
                continue
            self._drop_absent()

    def _drop_absent(self) -> None:
        """Drop what two refreshes in a row lack: one alone may be of a broker that lags behind."""
        known = self._known or frozenset()
        absent = known - self._found()
        gone, self._absent = absent & self._absent, absent
        if gone:
            self._change(known - gone)


async def partition_count(cluster: Cluster, topic: str, *, auto_create: bool = False) -> int:
    """The number of partitions of a topic, fetched if it is not known.

    Raises UnknownTopicOrPartitionError, KafkaTimeoutError.
    """

    async def attempt() -> int:
        if topic not in cluster.cache.topics:
            await cluster.refresh((topic,), auto_create=auto_create)
        known = cluster.cache.topics.get(topic)
        if known is None:
            code = cluster.cache.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise kafka_error(code, f"topic {topic} does not exist")
        return len(known.partitions)

    return await cluster.retrying(f"partitions of {topic}", attempt)


def checked_topics(topics: Any) -> list[str]:
    """Topic names as callers write them: one, or several. Raises OptionError, UsageError."""
    if isinstance(topics, Mapping) or not isinstance(topics, Iterable):
        raise OptionError(
            f"topics is {topics!r}, of type {type(topics).__name__}: give topic names, and options "
            "as keywords"
        )
    listed = [topics] if isinstance(topics, str) else list(topics)
    names = [topic.name if isinstance(topic, Topic) else topic for topic in listed]
    for name in names:
        try:
            topic_name(name)
        except UsageError as e:
            if isinstance(name, str) and ":" in name:
                raise UsageError(f"{e}; bootstrap_servers is a keyword") from None
            raise
    return names


def checked_pattern(pattern: Any) -> re.Pattern[str] | None:
    """A pattern as callers write it: a regular expression, as text or compiled.

    Raises OptionError, UsageError.
    """
    if pattern is None:
        return None
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise OptionError(
            f"pattern is {pattern!r}, of type {type(pattern).__name__}: give a string"
        )
    try:
        return pattern if isinstance(pattern, re.Pattern) else re.compile(text)
    except re.error as e:
        raise UsageError(f"pattern {text!r} is no regular expression: {e}") from None
