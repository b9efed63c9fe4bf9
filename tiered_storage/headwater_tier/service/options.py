"""The options of `headwater tier serve`, and the clients that they describe. No heavy imports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.client.blocking.broker_metadata import BrokerMetadata
from headwater.client.blocking.record_client import RecordClient
from headwater.local.zk_client import NO_SECURITY, ZooKeeperSecurity
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.security.store_options import StoreOptions
from headwater_tier.service.topic_finder import TopicFinder

CLIENT_ID = "headwater-tier"
REQUEST_TIMEOUT_S = 15.0
RETRY_TIMEOUT_S = 3.0
"""Short: a topic without a leader is tried again later, and others must not wait for it."""


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Where the catalog's writer reads, beside the brokers."""

    zookeeper: str
    zookeeper_security: ZooKeeperSecurity = NO_SECURITY
    key_file: str = ""
    """Empty: the brokers' config names it, or SCRAM credentials are not kept."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What a service is started with."""

    bootstrap_servers: str
    credentials: Credentials = NO_CREDENTIALS
    tables_uri: str = ""
    """Base folder of tables where no config has one."""
    storage_options: StoreOptions = field(default=(), repr=False)
    schema_registry: str = ""
    registry_security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The client's properties, by which it logs in at the registry."""
    metrics_listener: str = ""
    """HOST:PORT of Prometheus metrics; empty: none."""
    metrics_config: str = ""
    """File that says who may read them off loopback; empty: none."""
    instance_id: str | None = None
    """`group.instance.id`, of a service that its supervisor restarts."""
    catalog: CatalogSettings | None = None
    """None: no catalog is kept."""

    def client(self) -> RecordClient:
        """A new client for one thread."""
        return RecordClient(
            self.bootstrap_servers,
            client_id=CLIENT_ID,
            request_timeout_s=REQUEST_TIMEOUT_S,
            retry_timeout_s=RETRY_TIMEOUT_S,
            credentials=self.credentials,
        )

    def brokers(self) -> BrokerMetadata:
        """A new metadata client for one thread."""
        return BrokerMetadata(self.bootstrap_servers, self.client())

    def finder(self, brokers: BrokerMetadata) -> TopicFinder:
        """Finds the topics to tier, over these connections."""
        return TopicFinder(
            brokers, tables_uri=self.tables_uri, storage_options=self.storage_options
        )
