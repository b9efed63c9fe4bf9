"""Which nodes are open, public, secret; and what the broker's settings make of it."""

from __future__ import annotations

import asyncio

import pytest

from headwater.config.keys import broker_values
from headwater.errors import UsageError
from headwater.ports.metadata_store import Create
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater_broker.app.zookeeper_security import (
    check_brokers_have_credentials,
    zookeeper_security,
)
from headwater_broker.metadata import znodes
from headwater_broker.metadata.scram_secret import SCRAM_SECRET
from headwater_broker.metadata.session_znodes import decode_session, encode_session
from headwater_broker.metadata.znode_acls import ZnodeAcl, ZnodeAcls

OPEN, PUBLIC, SECRET = ZnodeAcl.OPEN, ZnodeAcl.PUBLIC, ZnodeAcl.SECRET


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/brokers/ids/1", PUBLIC),
        ("/config", PUBLIC),
        ("/config/topics/users", PUBLIC),
        ("/config/users", SECRET),
        ("/config/users/a/clients/b", SECRET),
        ("/config/users-of-old", PUBLIC),
        ("/config/brokers/1", SECRET),
        ("/delegation_token/tokens/t", SECRET),
        ("/delegation_token", PUBLIC),
        ("/headwater/sessions/1", SECRET),
        ("/headwater/secrets", SECRET),
        (SCRAM_SECRET, SECRET),
        ("/headwater/lives/1", PUBLIC),
    ],
)
def test_all_but_secrets_may_be_read(path: str, acl: ZnodeAcl) -> None:
    assert ZnodeAcls(is_authenticated=True, set_acl=True).of(path) is acl


@pytest.mark.parametrize(
    ("is_authenticated", "path", "acl"),
    [(True, "/headwater/sessions/1", SECRET), (True, "/brokers/ids/1", OPEN),
     (True, "/headwater/sessions", OPEN), (False, "/headwater/sessions/1", OPEN)],
)  # fmt: skip
def test_without_set_acl_only_passwords_are_shut(
    is_authenticated: bool, path: str, acl: ZnodeAcl
) -> None:
    """Brokers of an older release add their own below the same parent."""
    assert ZnodeAcls(is_authenticated=is_authenticated).of(path) is acl


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"zookeeper.set.acl": "true"}, "set headwater.zookeeper.digest=user:password"),
        ({"headwater.zookeeper.digest": "s3cret"}, "is not user:password"),
        ({"headwater.zookeeper.digest": ":s3cret"}, "is not user:password"),
    ],
)
def test_settings_that_secure_nothing_are_refused(rows: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        zookeeper_security(broker_values(rows))
    assert "s3cret" not in str(caught.value)


def test_the_digest_stands_in_no_repr() -> None:
    found = zookeeper_security(broker_values({"headwater.zookeeper.digest": "hw:s3cret"}))
    assert found.auth_data == [("digest", "hw:s3cret")]
    assert "s3cret" not in repr(found)


@pytest.mark.parametrize("has_credentials", [True, False])
def test_acls_wait_until_every_live_broker_has_credentials(has_credentials: bool) -> None:
    async def story() -> None:
        store = MemoryStore(MemoryTree())
        await store.ensure_path(znodes.BROKERS)
        for broker_id, shown in ((1, False), (2, has_credentials)):
            registration = znodes.BrokerRegistration(
                broker_id=broker_id, cluster_id="c", endpoints=(), control_address="h:1",
                has_store_credentials=shown,
            )  # fmt: skip
            data = registration.encode()
            await store.multi([Create(znodes.broker_path(broker_id), data, ephemeral=True)])
        await check_brokers_have_credentials(store, own_id=1)

    if has_credentials:
        asyncio.run(story())
        return
    with pytest.raises(UsageError, match="broker 2 shows no credentials"):
        asyncio.run(story())


def test_a_session_comes_back_and_a_garbled_one_shows_no_byte_of_it() -> None:
    assert decode_session("/s", encode_session(b"\x01\xff")) == b"\x01\xff"
    with pytest.raises(znodes.ZnodeError) as caught:
        decode_session("/s", b'{"version":1,"password":"0aXYZ"}')
    assert "XYZ" not in str(caught.value)
