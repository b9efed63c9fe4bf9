"""This broker's settings as they are now: its file, and over it what changed since (KIP-226)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from headwater.config.keys import broker_values
from headwater.config.layers import CLUSTER_WIDE, BrokerSettings, usable
from headwater_broker.app.config import NodeConfig
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta

logger = logging.getLogger(__name__)


class DynamicConfigs:
    """Follows the view. `on_change` hears of every change; until then the file counts.

    Made before whatever else listens to the view, so that these see the new settings.
    """

    def __init__(self, config: NodeConfig, view: MetadataCache) -> None:
        self.config = config
        self.settings = BrokerSettings(config.properties)
        self.on_change: list[Callable[[NodeConfig], None]] = []
        self._view = view
        view.on_change.append(self._look)

    def _look(self, change: MetadataDelta) -> None:
        if not change.broker_configs:
            return
        own = self._stored(str(self.config.broker_id))
        told = BrokerSettings(self.settings.file, self._stored(CLUSTER_WIDE), own)
        if told == self.settings:
            return
        self.settings = told
        merged = told.merged()
        self.config = replace(self.config, properties=merged, values=broker_values(merged))
        logger.info("configs changed: cluster-wide %s, own %s", told.cluster_wide, told.own)
        for tell in self.on_change:
            tell(self.config)

    def _stored(self, name: str) -> dict[str, str]:
        good, problems = usable(self._view.broker_configs.get(name, {}))
        for problem in problems:
            logger.error("a stored config of broker %r is ignored: %s", name or "(all)", problem)
        return good
