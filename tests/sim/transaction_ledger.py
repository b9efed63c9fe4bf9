"""The ledger of transactions: what clients know of each, and what the logs say of it.

Nothing here uses the broker's own producer state or its index of aborted transactions: `decided`
reads the batches of a log, `CommittedReader` the response of a Fetch, as Kafka's consumer does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headwater.records.batch import BatchHeader, read_header
from headwater.records.record import read_records
from headwater_broker.replica.partition import Partition
from sim.ledger import Key

COMMIT = 1
"""The type in a control record's key: commit; 0 is abort."""


class Fate(Enum):
    """The outcome of a transaction, as its client knows it."""

    OPEN = "not ended by the client"
    COMMITTED = "EndTxn(commit) was answered NONE"
    ABORTED = "EndTxn(abort) was answered NONE, or nothing was ever sent to commit it"
    UNKNOWN = "no reply that says"


@dataclass(slots=True)
class Transaction:
    """One transaction of one instance of a producer."""

    name: str
    """The prefix of its records' values; no other transaction has it."""
    transactional_id: str
    began_s: float
    fate: Fate = Fate.OPEN
    records: list[tuple[Key, bytes]] = field(default_factory=list)
    """Those that were sent, in order, whatever became of them."""


@dataclass(slots=True)
class Initialisation:
    """One InitProducerId request without an identity: it fences all others of its id."""

    instance: int
    sent_s: float
    answered_s: float | None = None
    """None: the reply was lost, so it may be executed at any time."""


class TransactionLedger:
    """All transactions of a world."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.initialisations: dict[str, list[Initialisation]] = {}
        self.instances: dict[str, int] = {}
        """Instances that a transactional id has had."""
        self.read: dict[Key, dict[int, bytes]] = {}
        """Offset -> value, of all read_committed consumers."""
        self.passes: list[tuple[Key, int, frozenset[int]]] = []
        """Passes of consumers from the start of a partition: its end, and the offsets read."""
        self.copied_to = -1
        """The offset that the copier's group has committed, at the end."""
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        """Count an event."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def begin(self, name: str, transactional_id: str, now_s: float) -> Transaction:
        """A transaction begins."""
        made = self.transactions[name] = Transaction(name, transactional_id, now_s)
        return made

    def fate_of(self, value: bytes) -> Fate | None:
        """The fate of a record's transaction; None for a record of none."""
        found = self.transactions.get(value.partition(b"#")[0].decode())
        return None if found is None else found.fate

    def was_fenced(self, transactional_id: str, own: Initialisation) -> bool:
        """Whether another instance may have fenced the one that `own` initialised."""
        return any(
            other is not own and (other.answered_s is None or other.answered_s > own.sent_s)
            for other in self.initialisations.get(transactional_id, ())
        )

    def must_be_fenced(self, transactional_id: str, own: Initialisation, sent_s: float) -> bool:
        """Whether another instance was initialised after `own`, and before `sent_s`."""
        return any(
            other is not own
            and own.answered_s is not None
            and other.sent_s > own.answered_s
            and other.answered_s is not None
            and other.answered_s < sent_s
            for other in self.initialisations.get(transactional_id, ())
        )


class Decided(NamedTuple):
    """What the markers of a log say."""

    committed: dict[int, bytes]
    """Offset -> value of the records of committed transactions, and of records of none."""
    aborted: dict[int, bytes]
    open: dict[int, bytes]


def decided(partition: Partition) -> Decided:
    """The records of a log up to its high watermark, by the fate that markers give them."""
    committed: dict[int, bytes] = {}
    aborted: dict[int, bytes] = {}
    pending: dict[int, dict[int, bytes]] = {}
    for segment in partition.log.segments:
        data = bytes(segment.file.data)  # type: ignore[attr-defined]
        for header, batch in cut(data):
            if header.next_offset > partition.high_watermark:
                break
            producer_id = header.producer_id
            if header.is_control:
                ended = pending.pop(producer_id, {})
                (committed if commits(batch) else aborted).update(ended)
                continue
            rows = {r.offset: bytes(r.value or b"") for r in read_records(batch)}
            if header.is_transactional:
                pending.setdefault(producer_id, {}).update(rows)
            else:
                committed.update(rows)
    still_open = {offset: value for rows in pending.values() for offset, value in rows.items()}
    return Decided(committed, aborted, still_open)


def cut(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of some bytes; a cut-off last one is left out."""
    at = 0
    while len(data) - at >= 61:
        header = read_header(data, at)
        end = at + header.size_bytes
        if end > len(data):
            return
        yield header, data[at:end]
        at = end


def commits(marker: bytes) -> bool:
    """Whether a control batch is a commit marker: its key holds a version and a type."""
    (record,) = read_records(marker, with_control=True)
    return int.from_bytes(bytes(record.key or b"")[2:4], "big") == COMMIT


def committed_of(
    data: bytes, aborted: list[tuple[int, int]], offset: int
) -> tuple[list[tuple[int, bytes]], int]:
    """The records from `offset` on that a read_committed consumer returns, and its next offset.

    `aborted`: producer id and first offset, as the response of Fetch lists them.
    """
    due = sorted(aborted, key=lambda row: row[1])
    skipped: set[int] = set()
    found: list[tuple[int, bytes]] = []
    for header, batch in cut(data):
        while due and due[0][1] <= header.last_offset:
            skipped.add(due.pop(0)[0])
        if header.is_control:
            if not commits(batch):
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += [
                (r.offset, bytes(r.value or b"")) for r in read_records(batch) if r.offset >= offset
            ]
        offset = max(offset, header.next_offset)
    return found, offset
