"""The settings that request handlers read, out of a broker's settings as they are now."""

from __future__ import annotations

from headwater.config.keys import Values
from headwater.config.layers import BrokerSettings
from headwater.config.rows_broker import RACK_AWARE_SELECTOR
from headwater.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from headwater.wire.restore_names import GROUPS_PENDING
from headwater_broker.api.admin.table_place import ALLOWED_URIS
from headwater_broker.api.api_config import ApiConfig, InternalTopicConfig
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.dynamic_config import DynamicConfigs


class CurrentApiConfig:
    """The settings that handlers read, as they are now (KIP-226)."""

    def __init__(self, dynamic: DynamicConfigs) -> None:
        self._dynamic = dynamic
        self.value = api_config(dynamic.config, dynamic.settings)
        dynamic.on_change.append(self._changed)

    def now(self) -> ApiConfig:
        """The present settings."""
        return self.value

    def _changed(self, config: NodeConfig) -> None:
        self.value = api_config(config, self._dynamic.settings)


def internal_topics(v: Values) -> dict[str, InternalTopicConfig]:
    """How the coordinators' topics are created, by name."""
    transaction_replicas = v.integer("transaction.state.log.replication.factor")
    # A cluster of one broker would refuse every write with more than one in-sync replica.
    min_isr = min(v.integer("transaction.state.log.min.isr"), transaction_replicas)
    share_replicas = v.integer("share.coordinator.state.topic.replication.factor")
    share_min_isr = min(v.integer("share.coordinator.state.topic.min.isr"), share_replicas)
    return {
        OFFSETS_TOPIC: InternalTopicConfig(
            v.integer("offsets.topic.num.partitions"),
            v.integer("offsets.topic.replication.factor"),
            (
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(v.integer("offsets.topic.segment.bytes"))),
            ),
        ),
        TRANSACTION_TOPIC: InternalTopicConfig(
            v.integer("transaction.state.log.num.partitions"),
            transaction_replicas,
            (
                ("unclean.leader.election.enable", "false"),
                ("compression.type", "uncompressed"),
                ("cleanup.policy", "compact"),
                ("min.insync.replicas", str(min_isr)),
                ("segment.bytes", str(v.integer("transaction.state.log.segment.bytes"))),
            ),
        ),
        SHARE_STATE_TOPIC: InternalTopicConfig(
            v.integer("share.coordinator.state.topic.num.partitions"),
            share_replicas,
            (
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(share_min_isr)),
                ("retention.bytes", "-1"),
                ("retention.ms", "-1"),
                ("segment.bytes", str(v.integer("share.coordinator.state.topic.segment.bytes"))),
                ("unclean.leader.election.enable", "false"),
            ),
        ),
    }


def api_config(config: NodeConfig, settings: BrokerSettings) -> ApiConfig:
    """The settings that handlers read, out of a broker's settings."""
    v = config.values
    return ApiConfig(
        auto_create_topics=v.boolean("auto.create.topics.enable"),
        num_partitions=v.integer("num.partitions"),
        default_replication_factor=v.integer("default.replication.factor"),
        min_insync_replicas=v.integer("min.insync.replicas"),
        fetch_max_bytes=v.integer("fetch.max.bytes"),
        fetch_session_slots=v.integer("max.incremental.fetch.session.cache.slots"),
        internal_topics=internal_topics(v),
        request_timeout_ms=v.integer("request.timeout.ms"),
        awaits_restored_groups=v.boolean(GROUPS_PENDING),
        selects_by_rack=v.string("replica.selector.class") == RACK_AWARE_SELECTOR,
        table_bases=v.strings(ALLOWED_URIS) if v.is_set(ALLOWED_URIS) else (config.tables_uri,),
        settings=settings,
    )
