"""Kills programs and brokers while a group copies a topic, and waits until the copy is whole."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from suites import judge
from suites.clusters import BROKERS, ClusterUnderTest
from suites.killing import KillableProgram, wait_until

BROKER = "broker"
"""A victim of this name is a broker, any other one a program."""
BROKER_DOWN_S = (0.5, 3.0)


def restart_ended(programs: Sequence[KillableProgram]) -> int:
    """Start again what has ended by itself; how many had."""
    return sum(program.restart_if_ended() for program in programs)


def kill_in_turn(
    cluster: ClusterUnderTest,
    programs: Sequence[KillableProgram],
    victims: Sequence[str],
    chance: random.Random,
    working_s: tuple[float, float],
    killed: Callable[[str], None] = lambda _victim: None,
) -> int:
    """Kill and start again one victim after the other, each after a while of work; how many
    programs ended by themselves meanwhile. `killed` is called after each."""
    ended = 0
    for victim in victims:
        time.sleep(chance.uniform(*working_s))
        ended += restart_ended(programs)
        if victim == BROKER:
            broker = chance.randrange(BROKERS)
            cluster.kill(broker)
            time.sleep(chance.uniform(*BROKER_DOWN_S))
            cluster.restart(broker)
        else:
            program = chance.choice(programs)
            program.kill()
            program.start()
        killed(victim)
    return ended


def drain(
    bootstrap: str, programs: Sequence[KillableProgram], group: str, topic: str, timeout_s: float
) -> int:
    """Return when the group has committed the whole topic; how many programs ended meanwhile.
    Raises AssertionError with the last words of each."""
    ends = judge.watermarks(bootstrap, topic)
    ended = 0

    def is_done() -> bool:
        nonlocal ended
        ended += restart_ended(programs)
        return judge.committed_offsets(bootstrap, group, topic) == ends

    try:
        wait_until(is_done, f"the offsets of {group} at the end", timeout_s)
    except AssertionError as error:
        words = "\n".join(program.last_words() for program in programs)
        raise AssertionError(f"{error}: {words}") from error
    return ended
