"""The replies to requests about an epoch. Pure functions."""

from __future__ import annotations

from headwater.wire.epoch_values import EpochStatus
from headwater_broker.coordinator.common.shard import Decision, Token
from headwater_broker.coordinator.transaction.epoch_values import NONE_YET, EpochReply, Sink
from headwater_broker.coordinator.transaction.transaction import Transaction


def answer(status: EpochStatus, sink: Sink | None) -> EpochReply:
    """A status, with the sink's last committed epoch."""
    return EpochReply(status, NONE_YET if sink is None else sink.last_epoch)


def admitted(sink: Sink, participant: Transaction) -> EpochReply:
    """A task has joined as this participant."""
    return EpochReply(EpochStatus.OPEN, sink.last_epoch, participant=participant)


def settle(decision: Decision, token: Token, reply: EpochReply) -> Decision:
    """Reply with the records of the decision, or as one who leads where there are none."""
    if decision.records:
        return decision.confirm(token, reply)
    return decision.reply_as_leader(token, reply)
