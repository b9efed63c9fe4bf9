"""The node above the cluster's trees: a chroot is secured, a server's own root is named."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from kazoo import exceptions as kx
from kazoo.security import OPEN_ACL_UNSAFE

from headwater.local.zk_client import PUBLIC_ACL, SECRET_ACL, ZooKeeperSecurity
from headwater.ports.metadata_store import NotAuthorizedError
from headwater_broker.metadata.store_zk import ZooKeeperStore
from headwater_broker.metadata.zk_handler import DirectCallbackHandler

SECURITY = ZooKeeperSecurity(digest="brokers:s3cret", set_acl=True)


class Tree:
    """kazoo's client; `acls` has the nodes that exist."""

    def __init__(self, acls: dict[str, Any], *, may_set: bool = True) -> None:
        self.handler = DirectCallbackHandler()
        self.acls = acls
        self._may_set = may_set

    def get_acls_async(self, path: str) -> Any:
        found = path in self.acls
        return self._answer((self.acls[path], None) if found else kx.NoNodeError())

    def set_acls_async(self, path: str, acls: Any) -> Any:
        if self._may_set:
            self.acls[path] = tuple(acls)
        return self._answer(None if self._may_set else kx.NoAuthError())

    def get_children_async(self, path: str) -> Any:
        return self._answer([])

    def _answer(self, value: Any) -> Any:
        result = self.handler.async_result()
        if isinstance(value, Exception):
            result.set_exception(value)
        else:
            result.set(value)
        return result


def secure(connect: str, tree: Tree) -> int:
    async def run() -> int:
        store = ZooKeeperStore(connect, 1000, cast(Any, tree), SECURITY)
        return await store.secure()

    return asyncio.run(run())


def test_a_chroot_is_secured_and_what_is_beside_it_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who may delete its children puts another `/controller` in the place of the brokers'."""
    tree = Tree(dict.fromkeys(("/", "/a", "/a/hw", "/a/hw/brokers"), OPEN_ACL_UNSAFE))
    assert secure("z:1/a/hw", tree) == 2
    assert tree.acls["/a/hw"] == tree.acls["/a/hw/brokers"] == PUBLIC_ACL
    assert tree.acls["/"] == tree.acls["/a"] == OPEN_ACL_UNSAFE
    assert secure("z:1/a/hw", tree) == 0
    assert not caplog.records


@pytest.mark.parametrize("acl", [PUBLIC_ACL, SECRET_ACL])
def test_a_root_that_is_shut_stays_as_it_is(acl: Any, caplog: pytest.LogCaptureFixture) -> None:
    for connect, root in (("z:1", "/"), ("z:1/hw", "/hw")):
        tree = Tree({root: acl}, may_set=False)
        assert secure(connect, tree) == 0
    assert not caplog.records


def test_the_open_root_of_a_server_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    tree = Tree({"/": OPEN_ACL_UNSAFE, "/brokers": OPEN_ACL_UNSAFE})
    with caplog.at_level(logging.WARNING):
        assert secure("z:1", tree) == 1
    assert tree.acls == {"/": OPEN_ACL_UNSAFE, "/brokers": PUBLIC_ACL}
    [record] = caplog.records
    assert "give zookeeper.connect a chroot" in record.getMessage()


def test_a_chroot_of_others_is_not_taken_for_secure() -> None:
    tree = Tree({"/hw": OPEN_ACL_UNSAFE}, may_set=False)
    with pytest.raises(NotAuthorizedError, match="/hw"):
        secure("z:1/hw", tree)
