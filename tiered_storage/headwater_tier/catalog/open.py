"""Opens the catalog's writer on a running cluster: ZooKeeper, brokers, table and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from headwater.client.blocking.broker_metadata import BrokerMetadata
from headwater.client.blocking.record_client import RecordClient
from headwater.errors import UsageError
from headwater.local.zk_client import NO_SECURITY, ZooKeeperSecurity
from headwater.local.zk_mirror import ZooKeeperMirror
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.security.sealed import Sealer, read_key
from headwater.security.store_options import StoreOptions
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.catalog.observer import BrokerObserver
from headwater_tier.catalog.rows import ROOTS
from headwater_tier.catalog.table import CatalogTable, catalog_uri
from headwater_tier.catalog.writer import CatalogWriter
from headwater_tier.table_location import BROKER_URI_KEY

KEY_FILE = "headwater.catalog.key.file"
REQUEST_TIMEOUT_S = 10.0
RETRY_TIMEOUT_S = 3.0
"""Short: what does not answer is asked again at a later tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """Where the parts are. Empty `tables_uri` and `key_file`: the brokers' configs name them."""

    bootstrap_servers: str
    zookeeper: str
    tables_uri: str = ""
    storage_options: StoreOptions = field(default=(), repr=False)
    key_file: str = ""
    credentials: Credentials = NO_CREDENTIALS
    zookeeper_security: ZooKeeperSecurity = NO_SECURITY


class OpenCatalog:
    """A writer and its connections; `close` ends them. Its `writer.tick` is called twice a second
    or so: a change is committed at the next one."""

    def __init__(self, options: CatalogOptions) -> None:
        """Raises UsageError, NoBrokersAvailableError, TableAccessError."""
        clock, entropy = SystemClock(), SystemEntropy()
        self._client = _client(options)
        try:
            configs = _configs(options, self._client)
            base = _base(options, configs)
            key_file = options.key_file or configs.get(KEY_FILE, "")
            sealer = Sealer(read_key(key_file, KEY_FILE), entropy) if key_file else None
            table = CatalogTable.create(catalog_uri(base), dict(options.storage_options))
        except BaseException:
            self._client.close()
            raise
        levels = {root: levels for root, (_, levels) in ROOTS.items()}
        self._mirror = ZooKeeperMirror(options.zookeeper, levels, options.zookeeper_security)
        observer = BrokerObserver(self._client)
        self.writer = CatalogWriter(table, self._mirror, observer, clock, entropy, sealer)

    def __enter__(self) -> OpenCatalog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._mirror.close()
        self._client.close()


def find_catalog(options: CatalogOptions) -> CatalogTable:
    """The catalog, to be read; brokers are asked only if no option names its folder.

    Raises UsageError, TableAccessError.
    """
    base = options.tables_uri
    if not base:
        client = _client(options)
        try:
            base = _base(options, _configs(options, client))
        finally:
            client.close()
    return CatalogTable(catalog_uri(base), dict(options.storage_options))


def _client(options: CatalogOptions) -> RecordClient:
    return RecordClient(
        options.bootstrap_servers,
        client_id="headwater-catalog",
        request_timeout_s=REQUEST_TIMEOUT_S,
        retry_timeout_s=RETRY_TIMEOUT_S,
        credentials=options.credentials,
    )


def _configs(options: CatalogOptions, client: RecordClient) -> Mapping[str, str]:
    """What any broker says of tables and key."""
    client.metadata(())
    brokers = BrokerMetadata(options.bootstrap_servers, client)
    return brokers.broker_configs(client.broker_ids[0], (BROKER_URI_KEY, KEY_FILE))


def _base(options: CatalogOptions, configs: Mapping[str, str]) -> str:
    base = options.tables_uri or configs.get(BROKER_URI_KEY, "")
    if not base:
        raise UsageError(
            f"no config says where the tables are: set the brokers' {BROKER_URI_KEY}, or give"
            " --tables-uri"
        )
    return base
