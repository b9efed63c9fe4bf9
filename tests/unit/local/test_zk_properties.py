"""A tool's way to ZooKeeper out of a properties file: the brokers' credentials, TLS, or both."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.secure_cluster import SecureCluster
from headwater.local.services import Services
from headwater.local.zk_client import NO_SECURITY
from headwater.local.zk_properties import (
    DIGEST,
    zookeeper_file,
    zookeeper_security,
)
from headwater.system import SystemClock, SystemEntropy
from tls_authority import Authority

TLS = "zookeeper.ssl.client.enable=true\n"


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trusted") / "ca.pem"
    path.write_text(Authority().pem)
    return path


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_operator_shows_the_brokers_credentials(tmp_path: Path) -> None:
    found = zookeeper_security(written(tmp_path / "p", f"{DIGEST}=broker:s3cret\n"))
    assert (found.digest, found.tls, found.set_acl) == ("broker:s3cret", None, True)
    assert zookeeper_security(None) == NO_SECURITY


def test_tls_checks_zookeepers_name_unless_that_is_empty(tmp_path: Path, trusted: Path) -> None:
    rows = f"{TLS}zookeeper.ssl.truststore.location={trusted}\n"
    by_name = zookeeper_security(written(tmp_path / "p", rows)).tls
    assert by_name is not None
    assert (by_name.verify_mode, by_name.check_hostname) == (ssl.CERT_REQUIRED, True)
    rows += "zookeeper.ssl.endpoint.identification.algorithm=\n"
    both = zookeeper_security(written(tmp_path / "p", rows + f"{DIGEST}=broker:s3cret\n"))
    assert both.tls is not None
    assert (both.tls.check_hostname, both.digest) == (False, "broker:s3cret")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("security.protocol=SSL\n", r"neither headwater\.zookeeper\.digest nor .*: give"),
        ("zookeeper.ssl.truststore.location=/ca.pem\n", r"only with .*enable=true: add that line"),
        (f"{TLS}zookeeper.ssl.truststore.location=/none.pem\n", r"/none\.pem"),
        ("zookeeper.ssl.client.enable=perhaps\n", "perhaps"),
    ],
)
def test_a_file_that_cannot_work_names_the_remedy(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        zookeeper_security(written(tmp_path / "p", text))
    with pytest.raises(UsageError, match=r"--zookeeper-config '.*none' cannot be read"):
        zookeeper_security(tmp_path / "none")


@pytest.mark.parametrize("secure", [False, True])
def test_a_cluster_keeps_a_file_for_its_tools(tmp_path: Path, trusted: Path, secure: bool) -> None:
    spec = ClusterSpec(directory=tmp_path, cluster_id="c" * 22, brokers=1, base_port=9092)
    own = SecureCluster(tmp_path, SystemClock(), SystemEntropy()) if secure else None
    if own is not None:
        own.prepare(spec)
    rows = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(trusted),
    }
    Services(spec, SystemClock(), security=own, properties=rows).start("127.0.0.1:9092")
    path = zookeeper_file(tmp_path)
    assert path is not None
    assert path.stat().st_mode & 0o077 == 0
    found = zookeeper_security(path)
    assert found.tls is not None
    assert found.digest == ("" if own is None else own.zookeeper().digest)
    Services(spec, SystemClock(), security=own).start("127.0.0.1:9092")  # by TLS no more
    assert zookeeper_file(tmp_path) == (None if own is None else own.secrets)
