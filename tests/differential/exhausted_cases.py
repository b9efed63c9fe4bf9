"""Cases of a producer id whose epochs are used up (KIP-360): each event at epoch 32766."""

from __future__ import annotations

from dataclasses import dataclass

from differential.coordinator_steps import TIMEOUT_MS, Add, End, Init, Settle, State
from differential.partition_steps import Read, Write
from differential.session import Answer, Case, Session, Step, Who, name_of
from differential.transactions import STALE
from headwater.wire.apis import k22_init_producer_id as k22

LAST_EPOCH = 32_766


@dataclass(frozen=True, kw_only=True)
class Exhaust(Step):
    """InitProducerId until the slot's producer id has its last epoch."""

    tid: str = "t"
    slot: str = "p"
    timeout_ms: int = TIMEOUT_MS

    def ask(self, session: Session) -> Answer:
        request = k22.InitProducerIdRequest(
            transactional_id=session.transactional_id(self.tid),
            transaction_timeout_ms=self.timeout_ms,
        )
        left = LAST_EPOCH + 1
        while left:  # a coordinator that is not ready refuses some
            reply = session.exchange.ask_all(request, k22.InitProducerIdResponse, 4, left)
            if not reply.error_code:
                left = LAST_EPOCH - reply.producer_epoch
        session.slots[self.slot] = (reply.producer_id, reply.producer_epoch)
        return {
            "error": name_of(reply.error_code),
            "producer": session.symbol(reply.producer_id),
            "epoch": reply.producer_epoch,
        }


EXHAUSTED_CASES: tuple[Case, ...] = (
    Case("exhausted, init", (Exhaust(), Init(slot="q"), State(), Init(said=Who(), slot="r"))),
    Case(
        "exhausted, init of the producer, and its retry",
        (
            Exhaust(),
            Init(said=Who(), slot="q"),
            State(),
            Init(said=Who(), slot="r"),
            Init(said=STALE, slot="s"),
            State(),
        ),
    ),
    Case(
        "exhausted, init while a transaction is open",
        (Exhaust(), Add(), Write(), Init(slot="q"), Settle(), State(), Read(), Write(sequence=1)),
    ),
    Case(
        "exhausted, end TV1",
        (Exhaust(), Add(), Write(), End(), Settle(), State(), Add(), Write(sequence=1), Read()),
    ),
    *(
        Case(
            f"exhausted, {'commit' if commit else 'abort'} TV2, and its retry",
            (
                Exhaust(),
                Write(version=12),
                End(version=5, commit=commit, follows=False),
                Settle(),
                State(),
                End(version=5, commit=commit, follows=False),
                State(),
                Write(version=12, sequence=1),
                End(version=5, commit=commit),
                Write(version=12),
                Read(),
                End(version=5),
                Settle(),
                State(),
                Read(),
            ),
        )
        for commit in (True, False)
    ),
    Case(
        "exhausted, timed out",
        (
            Exhaust(timeout_ms=300),
            Write(version=12),
            Settle(),
            State(),
            Write(version=12, sequence=1),
            Init(slot="q"),
            State(),
            Read(),
        ),
    ),
)
