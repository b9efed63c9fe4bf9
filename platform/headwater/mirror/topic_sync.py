"""Keeps the target's topics in step with the source's: creation, partitions, configs.

Partitions grow in the target first: a record with a key must find the partition that it has in the
source. Topics are never deleted, and partitions never reduced.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headwater.client.admin.topics import TopicCalls
from headwater.client.cluster import Cluster
from headwater.client.errors import TopicAlreadyExistsError
from headwater.client.values import ConfigEntry, NewTopic, TopicDescription, TopicPartition
from headwater.errors import KafkaError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.selection import mirrored_topics

SET_BY_TOPIC = "DYNAMIC_TOPIC_CONFIG"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """A topic that both clusters have."""

    name: str
    source_id: str
    target_id: str
    partitions: int
    """Those that both have."""


class TopicSync:
    """Looks for topics; the owner of bucket 0 changes the target."""

    def __init__(self, source: Cluster, target: Cluster, config: MirrorConfig) -> None:
        """`source`, `target`: clusters whose metadata nobody else uses."""
        self.topics: dict[str, MirroredTopic] = {}
        self.first_counts: dict[str, int] | None = None
        """The partitions of the source's topics at the first look."""
        self.trouble: dict[str, str] = {}
        """Topic -> why its counterpart could not be changed."""
        self._source = TopicCalls(source)
        self._target = TopicCalls(target)
        self._config = config
        self._clock = source.clock
        self._configs_at = 0.0
        self._looks_at_configs = False
        self._seen_configs: dict[str, dict[str, str]] = {}

    def partitions(self) -> dict[TopicPartition, MirroredTopic]:
        """Every partition to mirror."""
        return {
            TopicPartition(topic.name, index): topic
            for topic in self.topics.values()
            for index in range(topic.partitions)
        }

    async def refresh(self, *, changes_target: bool) -> None:
        """Look for topics and partitions. Raises KafkaError when a cluster does not answer."""
        source = {t.name: t for t in await self._source.describe(None)}
        target = {t.name: t for t in await self._target.describe(None)}
        wanted = mirrored_topics(source, self._config.topics)
        if self.first_counts is None:
            self.first_counts = {name: len(source[name].partitions) for name in wanted}
        if changes_target:
            changed = False
            now = self._clock.monotonic()
            self._looks_at_configs = self._config.syncs_configs and now >= self._configs_at
            if self._looks_at_configs:
                self._configs_at = now + self._config.configs_s
            for name in wanted:
                changed |= await self._mirror_topic(source[name], target.get(name))
            if changed:
                target = {t.name: t for t in await self._target.describe(None)}
        self.topics = {
            name: MirroredTopic(
                name,
                str(source[name].topic_id),
                str(target[name].topic_id),
                min(len(source[name].partitions), len(target[name].partitions)),
            )
            for name in wanted
            if name in target
        }

    async def _mirror_topic(
        self, source: TopicDescription, target: TopicDescription | None
    ) -> bool:
        """Create or grow the target's topic, and set its configs; True if it is new or larger."""
        name, count = source.name, len(source.partitions)
        try:
            if target is None:
                configs = await self._configs(name)
                row = NewTopic(name, count, self._config.replication_factor, configs)
                await self._target.create([row], 30_000, validate_only=False)
                self._seen_configs[name] = configs
                log.warning("created topic %s with %d partitions in the target", name, count)
                self.trouble.pop(name, None)
                return True
            is_larger = len(target.partitions) < count
            if is_larger:
                await self._target.create_partitions({name: count}, {}, 30_000, validate_only=False)
                log.warning("topic %s has %d partitions in the target now", name, count)
            if self._looks_at_configs:
                configs = await self._configs(name)
                if self._seen_configs.get(name) != configs:
                    await self._set_configs(name, configs)
                    self._seen_configs[name] = configs
        except TopicAlreadyExistsError:
            return True
        except KafkaError as error:
            if self.trouble.get(name) != str(error):
                log.warning("topic %s in the target: %s", name, error)
            self.trouble[name] = str(error)
            return False
        self.trouble.pop(name, None)
        return is_larger

    async def _configs(self, name: str) -> dict[str, str]:
        """The configs that the source's topic sets, of those that are mirrored."""
        if not self._config.syncs_configs:
            return {}
        return _set(await self._source.describe_configs("topic", name), self._config.topic_configs)

    async def _set_configs(self, name: str, wanted: dict[str, str]) -> None:
        """Make the target's mirrored configs equal to the source's; others stay."""
        now = _set(await self._target.describe_configs("topic", name), self._config.topic_configs)
        changes: dict[str, str | None] = {k: v for k, v in wanted.items() if now.get(k) != v}
        changes |= dict.fromkeys(now.keys() - wanted.keys())
        if changes:
            await self._target.alter_configs("topic", name, changes, validate_only=False)
            log.warning("topic %s in the target: set %s", name, ", ".join(sorted(changes)))


def _set(found: dict[str, ConfigEntry], allowed: tuple[str, ...]) -> dict[str, str]:
    return {
        name: entry.value
        for name, entry in found.items()
        if name in allowed and entry.source == SET_BY_TOPIC and entry.value is not None
    }
