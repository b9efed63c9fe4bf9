"""Random histories of one sink: runs, zombies, repeated requests, lost coordinators, late markers.

Whatever the order: an epoch's rows are committed by one attempt at most, and then all that it
named; an answer about an outcome stays true; no producer identity is given out twice; all ends
complete.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from headwater.errors import KafkaError
from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_broker.coordinator.transaction.epoch_values import (
    EpochKey,
    EpochReply,
    EpochRequest,
    NamedParticipant,
)
from headwater_broker.coordinator.transaction.transaction import ProducerIdentity, Transaction
from unit.coordinator.epoch_log import CONFIG, EpochLog, named, writer

SEEDS = 200
STEPS = 60


@dataclass(eq=False)
class Attempt:
    """A driver's attempt to write an epoch."""

    of: EpochRequest
    joined: dict[int, Transaction] = field(default_factory=dict)
    """By task, the last attempt of it."""
    named: tuple[NamedParticipant, ...] | None = None
    """What was committed or prepared; a repeated request names the same."""
    is_prepared: bool = False


class History:
    """Drives one sink, and remembers what its clients were told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = EpochLog()
        self.tickets = 0
        self.runs = 0
        self.attempts: list[Attempt] = []
        self.owners: dict[ProducerIdentity, tuple[EpochKey, int, int]] = {}
        """Producer identity -> (attempt of the epoch, task, attempt of the task)."""
        self.committed: set[int] = set()
        """Epochs that clients were told to be committed."""
        self.ended: set[EpochKey] = set()
        """Attempts that were told to be aborted or fenced."""

    def step(self) -> None:
        steps = (
            self.new_attempt, self.join, self.join, self.join, self.commit, self.commit,
            self.prepare, self.resolve, self.abort, self.heartbeat, self.write_markers,
            self.write_markers, self.write_markers, self.wait, self.fail_over, self.refuse,
        )  # fmt: skip
        self.random.choice(steps)()

    def new_attempt(self) -> None:
        """A micro-batch, of the present run or of a new one."""
        self.tickets += 1
        if not self.runs or self.random.random() < 0.3:
            self.runs += 1
        last = max(self.committed, default=-1)
        epoch = self.random.choice((last + 1, last + 1, last + 1, last, max(last - 1, 0)))
        self.attempts.append(Attempt(writer(max(epoch, 0), self.tickets, UUID(int=self.runs))))

    def pick(self) -> Attempt:
        """Mostly the latest attempt; else a zombie's."""
        if not self.attempts:
            self.new_attempt()
        return self.random.choice((self.attempts[-1], self.random.choice(self.attempts)))

    def join(self) -> None:
        attempt, task = self.pick(), self.random.randrange(3)
        number = self.random.randrange(2)
        reply = self.told(attempt, lambda: self.log.join(attempt.of, task, number))
        if reply is None or reply.participant is None:
            return
        place = (attempt.of.key, task, number)
        assert self.owners.setdefault(reply.participant.identity, place) == place
        attempt.joined[task] = reply.participant

    def commit(self) -> None:
        attempt = self.pick()
        if attempt.named is None:
            attempt.named = self._named(attempt)
        if attempt.is_prepared:
            self.told(attempt, lambda: self._resolved(attempt, EpochState.COMMITTING))
            return
        token = self.log.start_commit(attempt.of, *attempt.named)
        if token not in self.log.replies:
            if self.random.random() < 0.5:
                return  # the driver is gone; or its coordinator is
            self.log.wait(CONFIG.epoch_complete_wait_ms)
        self.told(attempt, lambda: self.log.replied(token))

    def prepare(self) -> None:
        attempt = self.pick()
        if attempt.named is None:
            attempt.named = self._named(attempt)
        names = attempt.named
        reply = self.told(attempt, lambda: self.log.prepare(attempt.of, *names))
        attempt.is_prepared |= reply is not None and reply.status is EpochStatus.PREPARED

    def resolve(self) -> None:
        """The run that goes on decides what an earlier one has prepared."""
        attempt = self.pick()
        state = self.random.choice((EpochState.COMMITTING, EpochState.ABORTING))
        reply = self.told(None, lambda: self._resolved(attempt, state))
        if reply is not None and reply.status is EpochStatus.COMMITTED:
            self.committed.add(attempt.of.epoch)

    def _resolved(self, attempt: Attempt, state: EpochState) -> EpochReply:
        token = self.log.ask(lambda s, t: s.epochs.resolve(attempt.of, state, self.log.now, t))
        if token not in self.log.replies:
            self.log.wait(CONFIG.epoch_complete_wait_ms)
        return self.log.replied(token)

    def abort(self) -> None:
        attempt = self.pick()
        self.told(attempt, lambda: self.log.abort(attempt.of))

    def heartbeat(self) -> None:
        self.log.heartbeat(self.pick().of)

    def write_markers(self) -> None:
        due = self.log.due()
        self.random.shuffle(due)
        kept = len(due) if self.random.random() < 0.7 else self.random.randrange(len(due) + 1)
        self.log.write_markers(due[:kept])
        if kept < len(due):  # the others are sent again by the successor
            self.fail_over()

    def wait(self) -> None:
        self.log.wait(self.random.choice((1_000, CONFIG.epoch_timeout_ms // 2)))

    def fail_over(self) -> None:
        """Records of a decision may be split; nothing that was answered is lost."""
        self.log = self.log.restarted(compacted=self.random.random() < 0.5)
        self.log.shard.loaded(self.log.now)

    def refuse(self) -> None:
        """Too few replicas are in sync, for a while."""
        self.log.refuses_after = self.random.choice((0, 1, -1, -1, -1))

    # -- what clients are told

    @staticmethod
    def _named(attempt: Attempt) -> tuple[NamedParticipant, ...]:
        return tuple(named(task, joined) for task, joined in sorted(attempt.joined.items()))

    def told(self, attempt: Attempt | None, ask) -> EpochReply | None:  # type: ignore[no-untyped-def]
        """The reply; None without one, as the record was refused, or for an error."""
        try:
            reply: EpochReply = ask()
        except KafkaError:
            return None
        if attempt is None:
            return reply
        epoch, key = attempt.of.epoch, attempt.of.key
        if reply.status is EpochStatus.COMMITTED:
            self.committed.add(epoch)
        else:
            assert epoch not in self.committed or reply.status in (
                EpochStatus.FENCED,
                EpochStatus.CHECKPOINT_MISMATCH,
            ), f"epoch {epoch} was committed, now {reply.status.name}"
        if reply.status is EpochStatus.ABORTED and not attempt.is_prepared:
            self.ended.add(key)
        return reply

    # -- the end

    def finish(self) -> None:
        self.log.refuses_after = -1
        for _ in range(4):
            self.fail_over()
            self.log.write_markers()
            self.log.wait(CONFIG.epoch_timeout_ms)
            for key, epoch in list(self.log.shard.epochs.table.of("alerts").items()):
                if epoch.state is EpochState.PREPARED:
                    self.tickets += 1
                    last = writer(key.epoch, self.tickets, UUID(int=self.runs + 1))
                    self.log.resolve(last, EpochState.ABORTING)

    def check(self) -> None:
        assert self.log.in_flight == []
        last = max(self.committed, default=-1)
        if last >= 0:
            assert self.log.sink.last_epoch >= last
        by_epoch: dict[int, set[EpochKey]] = {}
        outcomes: dict[EpochKey, set[ProducerIdentity]] = {}
        for marker, (commits, _) in self.log.outcomes.items():
            producer = ProducerIdentity(marker.producer_id, marker.epoch - 1)
            key, _, _ = self.owners.get(producer, (EpochKey(-1, -1), 0, 0))
            if commits:
                by_epoch.setdefault(key.epoch, set()).add(key)
                outcomes.setdefault(key, set()).add(producer)
        assert EpochKey(-1, -1) not in outcomes, "a participant that nobody was given commits"
        for epoch, attempts in by_epoch.items():
            assert len(attempts) == 1, f"epoch {epoch} is committed by {attempts}"
        self._check_attempts(outcomes)

    def _check_attempts(self, outcomes: dict[EpochKey, set[ProducerIdentity]]) -> None:
        for attempt in self.attempts:
            committed = outcomes.get(attempt.of.key, set())
            if not committed:
                continue
            assert attempt.of.key not in self.ended, "it was told to be aborted"
            assert attempt.named is not None
            wanted = {(p.producer_id, p.producer_epoch) for p in attempt.named}
            assert committed == wanted, "a part of the epoch is committed"


@pytest.mark.parametrize("part", range(5))
def test_any_history_commits_each_epoch_once_and_whole(part: int) -> None:
    parts: Sequence[int] = range(part, SEEDS, 5)
    committed = 0
    for seed in parts:
        history = History(seed)
        try:
            for _ in range(STEPS):
                history.step()
            history.finish()
            history.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        committed += len(history.committed)
    assert committed > len(parts), "histories that commit nothing prove nothing"
