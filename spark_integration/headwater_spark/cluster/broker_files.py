"""Files of a broker's task on its host: configuration, key and certificates. No pyspark.

    D/conf/broker-0.properties               0600: it may hold passwords
    D/security/broker-0/keystore.pem         the key, made here, and the driver's word for it
    D/security/broker-0/truststore.pem       the trusted authorities

The key never leaves the host. In a secure cluster D and the data folders are shut for other users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headwater.errors import UsageError
from headwater.local.data_folders import FOLDER_MODE, LOG_DIRS
from headwater.local.private_file import write_private
from headwater.security.certificates import signing_request
from headwater_spark.cluster.executor_host import ExecutorHost

HOST_MARK = "{host}"
"""Placeholder in properties for the address of the executor's machine, which the task finds out."""
RACK_MARK = "{rack}"
"""Placeholder in properties for the machine's rack."""
KEY_STORE = "keystore.pem"
TRUST_STORE = "truststore.pem"


class BrokerFiles:
    """The files of one broker on the host of its task."""

    def __init__(self, name: str, config_path: Path, security: Path | None) -> None:
        """`security`: the folder of its certificates, in a secure cluster."""
        self.config_path = config_path
        self._name = name
        self._security = security
        self._key = b""

    def signing_request(self) -> bytes:
        """Make a key, which waits for its certificate; what the driver is to sign."""
        pair = signing_request(self._name)
        self._key = pair.key
        return pair.certificate

    def install(self, certificate: str, trusted: str) -> None:
        """Write the certificate of the last signing request, and the trusted authorities; brokers
        read changed files by themselves. Raises UsageError, OSError."""
        if self._security is None or not self._key:
            raise UsageError(f"{self._name}: a certificate came that was not asked for")
        self._security.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for folder in (self._security.parent, self._security):
            folder.chmod(FOLDER_MODE)
        # Trusted first: with its new certificate a broker can be among the new authority's.
        write_private(self._security / TRUST_STORE, trusted.encode())
        write_private(self._security / KEY_STORE, self._key + certificate.encode())
        self._key = b""

    def write_config(self, properties: Iterable[Sequence[str]], host: ExecutorHost) -> None:
        """Write the broker's configuration. Raises OSError."""
        rows = {key: _on_host(value, host) for key, value in properties}
        self.config_path.parent.mkdir(parents=True, exist_ok=True)
        if self._security is not None:
            self._shut_folders(rows)
        text = "".join(f"{key}={value}\n" for key, value in rows.items())
        write_private(self.config_path, text.encode())

    def _shut_folders(self, rows: Mapping[str, str]) -> None:
        """Let only the owner enter the cluster's folder, and the data folders that exist."""
        folders = [self.config_path.parent.parent]
        folders += [Path(folder) for folder in rows.get(LOG_DIRS, "").split(",") if folder]
        for folder in folders:
            if folder.is_dir():
                folder.chmod(FOLDER_MODE)


def _on_host(value: str, host: ExecutorHost) -> str:
    return value.replace(HOST_MARK, host.address).replace(RACK_MARK, host.rack)
