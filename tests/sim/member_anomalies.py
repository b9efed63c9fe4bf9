"""Anomalies of members of consumer groups, each planted by a script like `anomalies.py`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headwater.wire.apis import k08_offset_commit as k08
from sim.anomalies import Anomaly
from sim.consumer_members import GroupMember
from sim.scripted import KEY, Script


class Hand(GroupMember):
    """A member that does what the script says."""

    topic = KEY[0]

    async def work(self) -> None:
        """Nothing by itself."""

    def does(self, step: Coroutine[Any, Any, Any]) -> Any:
        """A task in the member's own process."""
        return self.loop.create_task(step)

    def reconnect(self) -> None:
        """Go on with another connection."""
        self._connections.clear()


async def _settle(script: Script, *hands: Hand) -> None:
    """Heartbeats, until the partitions are shared out."""
    while True:
        for hand in hands:
            await script.until(hand.does(hand.heartbeat()).done, "a heartbeat")
        if sum(len(hand.owned) for hand in hands) == 2 and all(hand.owned for hand in hands):
            return
        await script.pause()


async def late_commit(script: Script) -> None:
    """A member's commit arrives when its partition is another's, who has committed since."""
    first, second = Hand(script.world, 1, None), Hand(script.world, 2, None)
    script.world.clients += [first, second]
    first.is_done = second.is_done = True
    while len(first.owned) < len(("both", "partitions")):
        await script.until(first.does(first.heartbeat()).done, "a heartbeat")
        await script.pause()
    for partition in sorted(first.owned):
        await script.until(first.does(first.load(partition)).done, "an offset")
    moved = _later_moved(first)
    held = script.hold(k08.OffsetCommitRequest)
    late = first.does(first.commit(moved))
    await held.caught()
    first.reconnect()
    await _settle(script, first, second)
    script.expect(moved in second.owned, True)
    await script.until(second.does(second.load(moved)).done, "an offset")
    second.positions[moved] = 9
    await script.until(second.does(second.commit(moved)).done, "a commit")
    await held.release()
    await script.until(late.done, "the late commit's answer")
    again = second.does(second.load(moved))
    await script.until(again.done, "an offset")
    again.result()
    script.expect(second.positions[moved], 10)


def _later_moved(member: Hand) -> Any:
    """The partition that a second member will get: the first one keeps the lower."""
    return max(member.owned, key=lambda owned: owned[1])


MEMBER_ANOMALIES = (Anomaly("a late commit", late_commit, versions=(2,)),)
