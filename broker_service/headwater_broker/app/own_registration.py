"""The registration of this broker, as `/brokers/ids/N` shows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.wire.control import BrokerEndpoint
from headwater_broker.app.config import NodeConfig
from headwater_broker.app.environment import Environment
from headwater_broker.app.zookeeper_security import ZOOKEEPER_DIGEST
from headwater_broker.log.log_manager import LogManager
from headwater_broker.metadata.znodes import BrokerRegistration


@dataclass(slots=True)
class BoundPorts:
    """The ports that this broker listens on; known once they are bound."""

    control: int = 0
    listeners: dict[str, int] = field(default_factory=dict)


class OwnRegistration:
    """Describes this broker as it is now: its addresses, log directories, session."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: str,
        environment: Environment,
        logs: LogManager,
        ports: BoundPorts,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._environment = environment
        self._logs = logs
        self._ports = ports

    def describe(self) -> BrokerRegistration:
        """The content of the znode."""
        config, environment, ports = self._config, self._environment, self._ports
        return BrokerRegistration(
            broker_id=config.broker_id,
            cluster_id=self._cluster_id,
            endpoints=tuple(
                BrokerEndpoint(listener=a.name, host=a.host, port=a.port or ports.listeners[a.name])
                for a in config.advertised
            ),
            control_address=self.control_address,
            rack=config.values.string("broker.rack") or None,
            directory_ids=tuple(self._logs.directory_ids),
            boot_id=environment.boot_id,
            clean_shutdown_epoch=self._logs.clean_broker_epoch,
            min_insync_replicas=config.values.integer("min.insync.replicas"),
            timestamp_ms=environment.clock.now_ms(),
            protocols={name: protocol.name for name, protocol in config.protocols.items()},
            has_store_credentials=bool(config.properties.get(ZOOKEEPER_DIGEST)),
        )

    @property
    def control_address(self) -> str:
        """host:port of the control plane, as other brokers reach it."""
        host, _, port = self._config.control_advertised.rpartition(":")
        return f"{host}:{self._ports.control}" if port == "0" else self._config.control_advertised
