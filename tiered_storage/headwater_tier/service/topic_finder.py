"""Finds the topics to tier: those with `remote.storage.enable=true`, and what their configs say.

A topic that is new, recreated or grown is found by the metadata of all topics; configs of known
topics are read in turn, so that thousands of them cost little each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client.blocking.broker_metadata import BrokerMetadata, Topic
from headwater.client.core.metadata import NO_LEADER
from headwater.config.rows_tables import TABLE_ROWS
from headwater_tier.retention import NO_LIMIT, Limits
from headwater_tier.table_location import BROKER_URI_KEY, ENABLE_KEY, TOPIC_URI_KEY
from headwater_tier.table_names import TableLocation, table_uri

INTERVAL_KEY = "delta.interval.ms"
INTERVAL_DEFAULT_MS = 3_000
POLICY_KEY, MS_KEY, BYTES_KEY = "cleanup.policy", "retention.ms", "retention.bytes"
TYPED_KEYS = tuple(row.name for row in TABLE_ROWS)
KEYS = (ENABLE_KEY, TOPIC_URI_KEY, INTERVAL_KEY, POLICY_KEY, MS_KEY, BYTES_KEY, *TYPED_KEYS)
UNLOCATED = (
    "no config says where its table is: set the topic's config headwater.table.uri or the brokers' "
    "config headwater.tables.uri"
)
CONFIGS_PER_LOOK = 200
"""Known topics whose configs are read again at once."""


@dataclass(frozen=True, slots=True)
class TieredTopic:
    """A topic to tier. `location` is None while no config says where its table is."""

    topic: Topic
    location: TableLocation | None
    interval_s: float
    limits: Limits
    declared: Mapping[str, str]
    """The keys of its derived tables, as `headwater.value.format`."""


def tiered_topic(
    topic: Topic,
    configs: Mapping[str, str],
    base: str,
    storage_options: tuple[tuple[str, str], ...] = (),
) -> TieredTopic:
    """The topic by its configs; `base` is the folder of tables without a config of its own. Pure.

    A topic without `delete` in its cleanup policy has no retention.
    """
    folder = configs.get(TOPIC_URI_KEY) or base
    location = None
    if folder:
        uri = table_uri(folder, topic.name, topic.uuid)
        location = TableLocation(uri, topic.name, topic.uuid, storage_options)
    limits = Limits()
    if "delete" in configs.get(POLICY_KEY, "delete"):
        no_limit = str(NO_LIMIT)
        limits = Limits(int(configs.get(MS_KEY, no_limit)), int(configs.get(BYTES_KEY, no_limit)))
    interval_ms = int(configs.get(INTERVAL_KEY, INTERVAL_DEFAULT_MS))
    declared = {key: configs[key] for key in TYPED_KEYS if configs.get(key)}
    return TieredTopic(topic, location, interval_ms / 1000, limits, declared)


class TopicFinder:
    """Follows the topics to tier. Belongs to one thread."""

    def __init__(
        self,
        brokers: BrokerMetadata,
        *,
        tables_uri: str = "",
        storage_options: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._brokers = brokers
        self._tables_uri = tables_uri
        self._base: str | None = None
        """The brokers' `headwater.tables.uri`, once it is known."""
        self._storage_options = storage_options
        self._configs: dict[tuple[str, str], Mapping[str, str]] = {}
        """(topic, topic id) -> its configs."""

    def find(self) -> dict[str, TieredTopic]:
        """The topics to tier now. Raises KafkaError, OSError while no broker answers."""
        topics = {n: t for n, t in self._brokers.topics(None).items() if not t.is_internal}
        keys = {(t.name, t.topic_id) for t in topics.values()}
        known = {key: self._configs[key] for key in self._configs if key in keys}
        oldest = [name for name, _ in list(known)[:CONFIGS_PER_LOOK]]
        new = [name for name, topic_id in sorted(keys - known.keys())]
        for name, configs in self._brokers.configs_of_topics([*new, *oldest], KEYS).items():
            key = name, topics[name].topic_id
            known.pop(key, None)  # to the end: its turn comes again after all others
            known[key] = configs
        self._configs = known
        enabled = {n: c for (n, _), c in known.items() if c.get(ENABLE_KEY) == "true"}
        base = self._tables_uri or (self._brokers_base(topics) if enabled else "")
        return {n: tiered_topic(topics[n], c, base, self._storage_options)
                for n, c in sorted(enabled.items())}  # fmt: skip

    def _brokers_base(self, topics: Mapping[str, Topic]) -> str:
        if self._base is None:
            leaders = {b for topic in topics.values() for b in topic.leaders} - {NO_LEADER}
            if not leaders:
                return ""
            found = self._brokers.broker_configs(min(leaders), (BROKER_URI_KEY,))
            self._base = found.get(BROKER_URI_KEY, "")
        return self._base
