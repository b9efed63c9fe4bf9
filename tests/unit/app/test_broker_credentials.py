"""What a broker shows to the others: the inter-broker listener's keys, and their renewal."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.secure_cluster import SecureCluster
from headwater.local.supervisor import broker_properties
from headwater.ports.credentials import NO_CREDENTIALS
from headwater.system import SystemClock, SystemEntropy
from headwater_broker.app.broker_credentials import broker_credentials, client_keys_of
from headwater_broker.app.config import NodeConfig, from_properties


def secure_config(directory: Path, **more: str) -> NodeConfig:
    """The configuration of a broker of a secure cluster."""
    spec = ClusterSpec(directory, "abc", 1, 9092, secure=True)
    secure = SecureCluster(directory, SystemClock(), SystemEntropy())
    secure.prepare(spec)
    slot = spec.slot(0)
    rows = {**broker_properties(spec, slot), **secure.broker_properties(slot)}
    return from_properties({**rows, **more})


def test_plaintext_needs_none() -> None:
    assert broker_credentials(from_properties({"broker.id": "0"})) is NO_CREDENTIALS


def test_a_secure_broker_shows_its_certificate(tmp_path: Path) -> None:
    config = secure_config(tmp_path)
    found = broker_credentials(config)
    context = found.tls()
    assert context is not None and context.check_hostname
    assert found.sasl("h") is None
    keys = client_keys_of(config, config.protocols["INTERNAL"])
    assert keys["security.protocol"] == "SSL"
    assert keys["ssl.keystore.location"].endswith("broker-0.pem")


def test_the_listeners_own_keys_win(tmp_path: Path) -> None:
    own = str(tmp_path / "other.pem")
    config = secure_config(tmp_path, **{"listener.name.internal.ssl.keystore.location": own})
    keys = client_keys_of(config, config.protocols["INTERNAL"])
    assert keys["ssl.keystore.location"] == own


def test_new_files_hold_for_new_connections(tmp_path: Path) -> None:
    found = broker_credentials(secure_config(tmp_path))
    before = found.tls()
    assert found.tls() is before
    folder = SecureCluster(tmp_path, SystemClock(), SystemEntropy()).folder
    folder.trust_next("abc")
    after = found.tls()
    assert after is not None and after is not before
    assert len(after.get_ca_certs()) == 2


def test_a_spoilt_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = broker_credentials(secure_config(tmp_path))
    before = found.tls()
    (tmp_path / "security" / "broker-0.pem").write_bytes(b"nothing")
    assert found.tls() is before
    assert "former certificates stay" in caplog.text


def test_an_absent_file_ends_the_start(tmp_path: Path) -> None:
    config = secure_config(tmp_path)
    (tmp_path / "security" / "broker-0.pem").unlink()
    with pytest.raises(UsageError, match=r"broker-0\.pem"):
        broker_credentials(config)
