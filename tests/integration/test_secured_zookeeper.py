"""ZooKeeper nodes that belong to the brokers: no open znode, no password, the rolling move."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from integration.conftest import Start

pytestmark = pytest.mark.integration

DIGEST = "brokers:s3cret-of-brokers"
SECRETS = ("/config/users", "/config/brokers")
SAMPLE = ("/brokers/ids/0", "/brokers/topics", "/controller_epoch", "/headwater/lives/0", "/config")


def assert_shut(servers: str) -> None:
    """Who has no credentials reads all but secrets, and changes nothing."""
    client = KazooClient(hosts=servers)
    client.start()
    try:
        for path in SAMPLE:
            client.get(path)
            with pytest.raises(NoAuthError):
                client.set(path, b"forged")
            with pytest.raises(NoAuthError):
                client.create(f"{path}/planted", b"")
        for path in SECRETS:
            with pytest.raises(NoAuthError):
                client.get_children(path)
        for name in client.retry(client.get_children, "/brokers/ids"):
            assert b"password" not in client.get(f"/brokers/ids/{name}")[0]
        with pytest.raises(NoAuthError):
            client.get("/headwater/sessions/0")
    finally:
        client.stop()


def test_a_new_cluster_leaves_no_open_znode(start_cluster: Start) -> None:
    cluster = start_cluster(brokers=2, headwater_zookeeper_digest=DIGEST, zookeeper_set_acl="true")
    cluster.create_topic("kept", replication_factor=2)
    assert_shut(cluster.zookeeper)
    cluster.kill_broker(1)  # its session is closed, and it registers again
    cluster.restart(1)
    cluster.wait_isr("kept", 2)
    assert_shut(cluster.zookeeper)


@pytest.mark.long
def test_an_open_cluster_is_secured_by_two_rolling_restarts(start_cluster: Start) -> None:
    cluster = start_cluster(brokers=2)
    cluster.create_topic("kept", replication_factor=2)
    conf = cluster.spec.directory / "conf"
    early = f"headwater.zookeeper.digest={DIGEST}\nzookeeper.set.acl=true\n"
    copy = conf / "early.properties"
    copy.write_text((conf / "broker-0.properties").read_text() + early)
    refused = subprocess.run(
        [sys.executable, "-m", "headwater_broker", "--config", str(copy)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode != 0
    assert "shows no credentials to ZooKeeper" in refused.stderr
    for rows in ({"headwater.zookeeper.digest": DIGEST}, {"zookeeper.set.acl": "true"}):
        for broker_id in (0, 1):
            cluster.stop_broker(broker_id)
            with (conf / f"broker-{broker_id}.properties").open("a") as file:
                file.writelines(f"{key}={value}\n" for key, value in rows.items())
            cluster.restart(broker_id)
            cluster.wait_isr("kept", 2)
    assert_shut(cluster.zookeeper)
