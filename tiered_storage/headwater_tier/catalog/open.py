"""Opens the catalog's writer on a running cluster: ZooKeeper, brokers, table and key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType

from headwater.client.admin.client import Admin
from headwater.client.security_options import SecurityOptions
from headwater.errors import UsageError
from headwater.local.zk_client import NO_SECURITY, ZooKeeperSecurity
from headwater.local.zk_mirror import ZooKeeperMirror
from headwater.security.sealed import Sealer, read_key
from headwater.system import SystemClock, SystemEntropy
from headwater_tier.catalog.observer import BrokerObserver
from headwater_tier.catalog.rows import ROOTS
from headwater_tier.catalog.table import CatalogTable, catalog_uri
from headwater_tier.catalog.writer import CatalogWriter
from headwater_tier.locate import BROKER_URI_KEY

KEY_FILE = "headwater.catalog.key.file"
CALL_TIMEOUT_MS = 5_000
"""Of requests to brokers: the catalog tries again at a later tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """Where the parts are. Empty `tables_uri` and `key_file`: the brokers' configs name them."""

    bootstrap_servers: str
    zookeeper: str
    tables_uri: str = ""
    storage_options: tuple[tuple[str, str], ...] = ()
    key_file: str = ""
    security: SecurityOptions = field(default_factory=SecurityOptions, repr=False)
    zookeeper_security: ZooKeeperSecurity = NO_SECURITY


class OpenCatalog:
    """A writer and its connections; `close` ends them. Its `writer.tick` is called twice a second
    or so: a change is committed at the next one."""

    def __init__(self, options: CatalogOptions) -> None:
        """Raises UsageError, NoBrokersAvailableError, TableAccessError."""
        clock, entropy = SystemClock(), SystemEntropy()
        self._admin = Admin(
            options.bootstrap_servers,
            client_id="headwater-catalog",
            default_api_timeout_ms=CALL_TIMEOUT_MS,
            **options.security,
        )
        try:
            configs = _broker_configs(self._admin)
            base = options.tables_uri or configs.get(BROKER_URI_KEY, "")
            if not base:
                raise UsageError(
                    f"no config says where the tables are: set the brokers' {BROKER_URI_KEY}, or"
                    " give --tables-uri"
                )
            key_file = options.key_file or configs.get(KEY_FILE, "")
            sealer = Sealer(read_key(key_file, KEY_FILE), entropy) if key_file else None
            table = CatalogTable.create(catalog_uri(base), dict(options.storage_options))
        except BaseException:
            self._admin.close()
            raise
        levels = {root: levels for root, (_, levels) in ROOTS.items()}
        self._mirror = ZooKeeperMirror(options.zookeeper, levels, options.zookeeper_security)
        observer = BrokerObserver(self._admin)
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
        self._admin.close()


def _broker_configs(admin: Admin) -> Mapping[str, str]:
    brokers = admin.describe_cluster().brokers
    found = admin.describe_configs("broker", str(brokers[0].node_id))
    return {name: entry.value for name, entry in found.items() if entry.value}
