"""The proof: compares the rows of every hop with the source.

A hop is the rows of both topics as one reader returned them. Each row is compared with the source
row of its id, which is the first field of its value. Order is checked per key. The digest covers
partition, offset, timestamp, key, value and headers of the sorted rows: two hops are equal exactly
if their digests are.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flights.records import Feed, Header, row_id

Row = tuple[str, int, int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""topic, partition, offset, timestamp (ms), key, value, headers in order."""

DIGEST_HEX = 12


@dataclass(frozen=True)
class Verdict:
    """The comparison of one reader's rows with the source."""

    hop: str
    read_by: str
    rows: int
    missing: int
    duplicate: int
    altered: int
    order_breaks: int
    digest: str

    @property
    def is_clean(self) -> bool:
        """True when no row is missing, doubled, altered or out of order."""
        return not (self.missing or self.duplicate or self.altered or self.order_breaks)


def digest(rows: Iterable[Row]) -> str:
    """SHA-256 over the sorted rows, each field with its length; null and empty differ."""
    sha = hashlib.sha256()
    for topic, partition, offset, timestamp, key, value, headers in sorted(
        rows, key=lambda r: (r[0], r[1], r[2])
    ):
        sha.update(f"{topic}/{partition}/{offset}/{timestamp}/{len(headers)}".encode())
        for part in (key, value, *(x for h in headers for x in (h[0].encode(), h[1]))):
            sha.update(b"-1" if part is None else b"%d:" % len(part))
            sha.update(part or b"")
    return sha.hexdigest()


def judge(hop: str, read_by: str, rows: Sequence[Row], feeds: Sequence[Feed]) -> Verdict:
    """Compare rows with the feeds; rows of other topics count as altered."""
    by_topic = {feed.topic: feed for feed in feeds}
    seen: Counter[tuple[str, int]] = Counter()
    altered = 0
    for topic, _, _, timestamp, key, value, headers in rows:
        feed = by_topic.get(topic)
        identity = _identity(value) if feed is not None else None
        if feed is None or identity is None or not 0 <= identity < len(feed):
            altered += 1
            continue
        seen[(topic, identity)] += 1
        same = (
            value == feed.values[identity]
            and key == feed.keys[identity]
            and timestamp == int(feed.timestamps_ms[identity])
            and headers == feed.headers[identity]
        )
        altered += not same
    expected = sum(len(feed) for feed in feeds)
    return Verdict(
        hop=hop,
        read_by=read_by,
        rows=len(rows),
        missing=expected - len(seen),
        duplicate=sum(count - 1 for count in seen.values()),
        altered=altered,
        order_breaks=order_breaks(rows),
        digest=digest(rows)[:DIGEST_HEX],
    )


def _identity(value: bytes | None) -> int | None:
    if value is None:
        return None
    try:
        return row_id(value)
    except ValueError:
        return None


def order_breaks(rows: Sequence[Row]) -> int:
    """The number of rows whose id is not above the former id of its key and partition.

    Records without a key are ordered within a partition only.
    """
    last: dict[tuple[str, int, bytes | None], int] = {}
    breaks = 0
    for topic, partition, _, _, key, value, _ in sorted(rows, key=lambda r: (r[0], r[1], r[2])):
        identity = _identity(value)
        if identity is None:
            continue
        slot = (topic, partition, key)
        breaks += identity <= last.get(slot, -1)
        last[slot] = identity
    return breaks


def agree(verdicts: Sequence[Verdict]) -> bool:
    """True when every hop is clean and all digests are equal."""
    return all(v.is_clean for v in verdicts) and len({v.digest for v in verdicts}) == 1


@dataclass(frozen=True)
class AlertVerdict:
    """The comparison of the alerts topic with the expected ids, and of its epochs with Spark's."""

    expected: int
    records: int
    distinct: int
    missing: int
    unexpected: int
    duplicates: int
    last_batch: int
    """The last micro-batch in the commit log of the query's checkpoint; -1: none."""
    last_epoch: int
    """The last committed epoch of the sink; -1: none."""
    open_epochs: int
    """Epochs of the sink that are not complete."""

    @property
    def wrong(self) -> int:
        """Ids that are missing or unexpected, and records that are there twice."""
        return self.missing + self.unexpected + self.duplicates

    @property
    def is_clean(self) -> bool:
        """True when every expected alert is there once, and checkpoint and topic agree."""
        return not (self.wrong or self.open_epochs) and self.last_batch == self.last_epoch


def query_id(checkpoint: Path) -> str:
    """The id that Spark has given to the query of a checkpoint: the name of its sink."""
    found = json.loads((checkpoint / "metadata").read_text())["id"]
    return str(found)


def last_batch(checkpoint: Path) -> int:
    """The last micro-batch in the commit log of a query's checkpoint; -1: none."""
    commits = checkpoint / "commits"
    return max((int(file.name) for file in commits.glob("[0-9]*")), default=-1)


def judge_alerts(
    values: Iterable[bytes],
    expected: set[int],
    *,
    last_batch: int,
    last_epoch: int,
    open_epochs: int,
) -> AlertVerdict:
    """Compare the records of the alerts topic with the ids that pandas computed, and the sink's
    epochs with the micro-batches of the query."""
    counts = Counter(row_id(v) for v in values)
    found = set(counts)
    return AlertVerdict(
        expected=len(expected),
        records=counts.total(),
        distinct=len(found),
        missing=len(expected - found),
        unexpected=len(found - expected),
        duplicates=sum(c - 1 for c in counts.values()),
        last_batch=last_batch,
        last_epoch=last_epoch,
        open_epochs=open_epochs,
    )
