"""ACLs under faults: cut connections, ended sessions, lost replies, deposed controllers, old tools.

Whatever happened, once the store is back every broker holds what the store holds, and the store
holds every change that was acknowledged.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import HeadwaterError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.ports.metadata_store import Check, Create, Delete, Set
from headwater.security.acl import AclBinding, AclFilter, PatternType, PermissionType
from headwater.testing.clocks import ManualClock
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater_broker.controller.zk.acl_writer import add_acls, remove_acls
from headwater_broker.metadata.acl_store import AclStore
from headwater_broker.security.audit_log import AuditLog
from headwater_broker.security.standard_authorizer import StandardAuthorizer

FENCE = "/fence"
BROKERS = 2


def acl(name: str, user: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, PatternType.LITERAL, f"User:{user}", "*", Operation.READ,
        PermissionType.DENY,
    )  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What happens next: `kind` on broker or writer `at`, with an ACL."""

    kind: str
    at: int
    acl: AclBinding


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ("add", "add", "remove", "suspend", "resume", "expire", "lose", "depose", "prune")
        ),
        st.integers(0, BROKERS - 1),
        st.builds(acl, st.sampled_from("ab"), st.sampled_from("xy")),
    ),
    max_size=25,
)


class World:
    """A controller that writes and brokers that follow, each with a session of its own."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.controller = self.tree.connect()
        self.stores: list[MemoryStore] = []
        self.brokers: list[AclStore] = []
        self.fence = Check(FENCE, 0)
        self.certain: dict[AclBinding, bool] = {}
        """Outcomes of acknowledged changes; an ACL whose last change failed is left out."""

    async def start(self) -> None:
        await self.controller.multi([Create(FENCE)])
        for _ in range(BROKERS):
            store = self.tree.connect()
            authorizer = StandardAuthorizer(frozenset(), AuditLog(ManualClock()))
            broker = AclStore(store, authorizer, retry_s=0)
            await broker.start()
            self.stores.append(store)
            self.brokers.append(broker)

    async def step(self, step: Step) -> None:
        store = self.stores[step.at]
        match step.kind:
            case "add" | "remove":
                await self._change(step)
            case "suspend":
                store.suspend()
            case "resume":
                store.resume()
            case "expire":
                store.expire()
            case "lose":
                self.controller.lose_next_reply()
            case "depose":
                await self._depose()
            case "prune":
                await self._prune()
        await asyncio.sleep(0)

    async def _change(self, step: Step) -> None:
        self.certain.pop(step.acl, None)
        try:
            if step.kind == "add":
                await add_acls(self.controller, self.fence, [step.acl])
            else:
                wanted = AclFilter(name=step.acl.name, principal=step.acl.principal)
                await remove_acls(self.controller, self.fence, [wanted])
        except HeadwaterError:
            return
        self.certain[step.acl] = step.kind == "add"

    async def _depose(self) -> None:
        """A new controller comes; the old one's fence must stop its next write."""
        other = self.tree.connect()
        await other.multi([Set(FENCE, b"")])
        old, self.fence = self.fence, Check(FENCE, (await other.get(FENCE)).version)
        before = self.tree.paths()
        try:
            await add_acls(other, old, [acl("deposed", "z")])
        except HeadwaterError:
            assert self.tree.paths() == before
        else:
            raise AssertionError("a deposed controller wrote")

    async def _prune(self) -> None:
        """An old Kafka broker removes change nodes that are 15 minutes old."""
        folder = "/kafka-acl-changes"
        other = self.tree.connect()
        for name in (await other.children(folder))[:-1]:
            await other.multi([Delete(f"{folder}/{name}")])

    async def check(self) -> None:
        for store in self.stores:
            store.resume()
        late = AclStore(
            self.tree.connect(), StandardAuthorizer(frozenset(), AuditLog(ManualClock()))
        )
        await late.start()
        stored = late.authorizer.acls(AclFilter())
        for change, is_there in self.certain.items():
            assert (change in stored) is is_there
        async with asyncio.timeout(10):
            for broker in self.brokers:
                while broker.authorizer.acls(AclFilter()) != stored:
                    await asyncio.sleep(0)
        for broker in (late, *self.brokers):
            await broker.close()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_brokers_end_with_what_was_acknowledged(steps: list[Step]) -> None:
    async def run() -> None:
        world = World()
        await world.start()
        for step in steps:
            await world.step(step)
        await world.check()

    asyncio.run(run())
