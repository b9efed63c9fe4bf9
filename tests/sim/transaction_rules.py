"""The invariants of transactions, checked beside those of all records (`invariants.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater_broker.replica.partition import Partition
from sim.invariants import Invariant, Seen
from sim.ledger import Key, Ledger
from sim.plan import COPIED, TRANSACTED
from sim.transaction_ledger import Decided, Fate, decided

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.world import World

SOURCE: Key = (TRANSACTED, 0)
TARGET: Key = (COPIED, 0)


class StableOffsetRises(Invariant):
    """The last stable offset of a replica never goes back, and is within its high watermark.

    But for a replica that was loaded with a tail above its high watermark. Its snapshot does not
    tell, as Kafka's does not, which transactions ended in that tail, so they count as stable; they
    are open again when the tail is cut. No reader is misled: the coordinator has decided them, and
    writes the same markers again.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[Partition, int] = {}
        self._loaded_ends: dict[Partition, int] = {}

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        stable = partition.last_stable_offset
        known = self._seen.get(partition, 0)
        loaded_end = self._loaded_ends.setdefault(partition, partition.log.log_end_offset)
        is_above = stable > partition.high_watermark
        if is_above or (stable < known and partition.high_watermark >= loaded_end):
            self.fail(
                f"{broker} {partition!r}: last stable offset {known} -> {stable}, "
                f"high watermark {partition.high_watermark}"
            )
        self._seen[partition] = stable


class ReadersSeeCommittedOnly(Invariant):
    """A read_committed consumer gets each record of a committed transaction, and no other."""

    def read_committed(self, key: Key, offset: int, value: bytes) -> None:
        ledger = self.world.transactions
        if ledger.fate_of(value) is Fate.ABORTED:
            self.fail(f"{key} offset {offset}: {value!r} was read, and its transaction aborted")
        known = ledger.read.setdefault(key, {}).setdefault(offset, value)
        if known != value:
            self.fail(f"{key} offset {offset}: was {known!r}, now {value!r}")

    def ended(self) -> None:
        for key, rows in self.world.transactions.read.items():
            committed = view(self.world, key).committed
            for offset, value in rows.items():
                if committed.get(offset) != value:
                    self.fail(f"{key} offset {offset}: {value!r} was read, and is not committed")
        for key, end, found in self.world.transactions.passes:
            wanted = {offset for offset in view(self.world, key).committed if offset < end}
            if wanted != found:
                self.fail(f"{key}: a consumer at {end} did not read {sorted(wanted - found)[:5]}")


class TransactionsAreWhole(Invariant):
    """Of a transaction all records are committed, once, or none; as its client was answered."""

    def ended(self) -> None:
        views = {key: view(self.world, key) for key in transacted(self.world)}
        counts: dict[tuple[Key, bytes], int] = {}
        for key, found in views.items():
            for value in found.committed.values():
                counts[key, value] = counts.get((key, value), 0) + 1
        for transaction in self.world.transactions.transactions.values():
            found_of = [counts.get(record, 0) for record in transaction.records]
            wanted = {Fate.COMMITTED: {1}, Fate.ABORTED: {0}}.get(transaction.fate, {0, 1})
            if len(set(found_of)) > 1 or not set(found_of) <= wanted:
                self.fail(f"{transaction}: its records are committed {found_of} times")


def unmarked(world: World) -> str:
    """Markers that are on their way still: one that failed comes after a pause of up to a second,
    whether its client waits for it or is done."""
    for broker in world.brokers:
        services = None if broker.node is None else broker.node.services
        for pending in () if services is None else services.transactions.markers.pending:
            if pending.missing:
                name = pending.transaction.transactional_id
                return f"{broker}: markers of {name!r} for {sorted(pending.missing)}"
    return ""


class NoTransactionStaysOpen(Invariant):
    """After healing every transaction ends, and the last stable offset is the log's end."""

    def ended(self) -> None:
        for key in self.world.partitions():
            for broker, partition in self.world.replicas_of(key):
                if partition.last_stable_offset != partition.high_watermark:
                    self.fail(
                        f"{broker} {partition!r}: last stable offset "
                        f"{partition.last_stable_offset} of {partition.high_watermark}"
                    )


class CommittedRecordsAreInOrder(Invariant):
    """Committed records of one instance are in the order in which it wrote them."""

    def ended(self) -> None:
        transactions = self.world.transactions.transactions
        order = {
            (key, value): number
            for number, (key, value) in enumerate(
                record for transaction in transactions.values() for record in transaction.records
            )
        }
        for key in transacted(self.world):
            last: dict[str, int] = {}
            for offset, value in sorted(view(self.world, key).committed.items()):
                name = value.partition(b"#")[0].decode()
                if name not in transactions:
                    continue
                instance = name.rpartition(".")[0]
                number = order[key, value]
                if number <= last.get(instance, -1):
                    self.fail(f"{key} offset {offset}: {value!r} is behind a later record")
                last[instance] = number


class CopiesAgreeWithOffsets(Invariant):
    """The copier's committed output is its input up to the committed offset: once, in order."""

    def ended(self) -> None:
        end = self.world.transactions.copied_to
        source = sorted(view(self.world, SOURCE).committed.items())
        wanted = [b"%d/%b" % row for row in source if row[0] < end]
        target = sorted(view(self.world, TARGET).committed.items())
        ledger = self.world.transactions
        copies = [value for _, value in target if ledger.fate_of(value) is not None]
        found = [value.partition(b"#")[2] for value in copies]
        if found != wanted:
            at = next(
                (n for n, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b),
                min(len(found), len(wanted)),
            )
            self.fail(
                f"{len(found)} copies of {len(wanted)} records up to offset {end}; "
                f"record {at} is {found[at : at + 1]}, not {wanted[at : at + 1]}"
            )


def transacted(world: World) -> list[Key]:
    """The partitions of the transactional clients."""
    return [(t, i) for t in (TRANSACTED, COPIED) for i in range(world.plan.topics[t])]


def view(world: World, key: Key) -> Decided:
    """What the leader's log says of its records."""
    for _, partition in world.replicas_of(key):
        if partition.is_leader:
            return decided(partition)
    raise AssertionError(f"{key} has no leader")


TRANSACTIONAL: tuple[type[Invariant], ...] = (
    StableOffsetRises,
    ReadersSeeCommittedOnly,
    TransactionsAreWhole,
    NoTransactionStaysOpen,
    CommittedRecordsAreInOrder,
    CopiesAgreeWithOffsets,
)
"""Two more are the clients' own: `NobodyIsFencedWithoutReason` and `ZombiesAreFenced`."""
