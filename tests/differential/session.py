"""One case on one server: steps, each a request, and their answers as plain values.

Answers are the same for the same behaviour: producer ids are `id1`, `id2`... in the order in
which a case meets them, error codes have their names, times are left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from differential.exchange import Exchange
from headwater.errors import ErrorCode

Answer = Any
Identity = tuple[int, int]
"""Producer id and epoch."""

TIMEOUT_MS = 60_000
PATIENCE_S = 20.0
RETRY_S = 0.02
UNKNOWN_ID = 987_654_321_000
"""A producer id that no server has given out."""
NO_ID = -1
MISSING = 77
"""A partition index that no topic has."""

NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


@dataclass(frozen=True)
class Who:
    """The identity that a request carries: that of a slot, or something near it."""

    slot: str = "p"
    epoch: int = 0
    """Added to the slot's epoch."""
    producer_id: int | None = None
    exact_epoch: int | None = None


class Session:
    """One case on one server: its topic, its transactional ids and its identities."""

    def __init__(self, exchange: Exchange, name: str, topic: str) -> None:
        self.exchange = exchange
        self.topic = topic
        self.name = name
        self.slots: dict[str, Identity] = {}
        self.members: dict[str, tuple[str, int]] = {}
        """Member id and generation, by short group id."""
        self._ids: dict[int, str] = {}

    def transactional_id(self, short: str) -> str:
        """The full transactional id, or group id, of a short one; an empty one stays."""
        return f"{self.name}.{short}" if short else ""

    def short(self, full: str) -> str:
        """The short form of `transactional_id`."""
        return full.removeprefix(f"{self.name}.")

    def identity(self, who: Who) -> Identity:
        """The producer id and epoch that a request carries."""
        producer_id, epoch = self.slots.get(who.slot, (NO_ID, -1))
        epoch = epoch + who.epoch if who.exact_epoch is None else who.exact_epoch
        return (producer_id if who.producer_id is None else who.producer_id), epoch

    def symbol(self, producer_id: int) -> str:
        """The name of a producer id in answers."""
        if producer_id in (NO_ID, UNKNOWN_ID):
            return "none" if producer_id == NO_ID else "unknown"
        return self._ids.setdefault(producer_id, f"id{len(self._ids) + 1}")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One request. `at_once`: CONCURRENT_TRANSACTIONS is an answer, else it is asked again."""

    at_once: bool = False

    def ask(self, session: Session) -> Answer:
        """Send the request once; its answer."""
        raise NotImplementedError

    def run(self, session: Session) -> Answer:
        """Send it until the server is ready for it."""
        end = time.monotonic() + PATIENCE_S
        retried = NOT_READY if self.at_once else NOT_READY | {ErrorCode.CONCURRENT_TRANSACTIONS}
        names = {code.name for code in retried}
        while True:
            try:
                answer = self.ask(session)
            except ConnectionError:
                return "the connection is closed"
            if not _names(answer) & names or time.monotonic() > end:
                return answer
            time.sleep(RETRY_S)


def _names(answer: Answer) -> set[str]:
    """All strings in an answer."""
    if isinstance(answer, str):
        return {answer}
    if isinstance(answer, dict):
        return set().union(*map(_names, answer.values()))
    if isinstance(answer, list | tuple):
        return set().union(*map(_names, answer))
    return set()


def name_of(code: int) -> str:
    """The name of an error code."""
    return ErrorCode(code).name


@dataclass(frozen=True)
class Case:
    """A sequence of steps with ids and a topic of its own."""

    name: str
    steps: tuple[Step, ...]

    def run(self, exchange: Exchange, topic: str) -> list[Answer]:
        """The answer to each step."""
        session = Session(exchange, self.name.replace(" ", "-"), topic)
        return [step.run(session) for step in self.steps]
