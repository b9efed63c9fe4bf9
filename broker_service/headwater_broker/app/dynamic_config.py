"""The broker's dynamic settings: those of its file, overridden by stored configs (KIP-226).

The controller has checked a change before it is stored (`controller.decisions.config_changes`);
`headwater.config.dynamic_check` is the rule of both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from headwater.config.dynamic_check import usable
from headwater.config.keys import broker_values
from headwater.config.layers import CLUSTER_WIDE, BrokerSettings
from headwater_broker.app.config import NodeConfig
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta

logger = logging.getLogger(__name__)


class DynamicConfigs:
    """The present settings, and `on_change` callbacks for every change of them.

    Created before the other listeners of the metadata, so that those see the new settings.
    """

    def __init__(self, config: NodeConfig, view: MetadataCache) -> None:
        self.config = config
        self.settings = BrokerSettings(config.properties)
        self.on_change: list[Callable[[NodeConfig], None]] = []
        self._view = view
        view.on_change.append(self._metadata_changed)

    def _metadata_changed(self, change: MetadataDelta) -> None:
        if not change.broker_configs:
            return
        own = self._stored(str(self.config.broker_id))
        stored = BrokerSettings(self.settings.file, self._stored(CLUSTER_WIDE), own)
        if stored == self.settings:
            return
        self.settings = stored
        merged = stored.merged()
        self.config = replace(self.config, properties=merged, values=broker_values(merged))
        logger.info(
            "configs changed: cluster-wide %s, of this broker %s", stored.cluster_wide, stored.own
        )
        for callback in self.on_change:
            callback(self.config)

    def _stored(self, name: str) -> dict[str, str]:
        good, problems = usable(self._view.broker_configs.get(name, {}))
        for problem in problems:
            logger.error("stored config of broker %r is ignored: %s", name or "(all)", problem)
        return good
