"""A share consumer's session with one leader: epochs, ShareFetch, ShareAcknowledge. Pure.

Both requests of a session have the next epoch, so one is in flight at a time. Epoch 0 opens a
session, and neither it nor ShareAcknowledge may bring acknowledgements then; -1 closes it, which
releases what the member still holds. A request that fails ends the session here: the next one is
another object, and records that were acquired in this one can no longer be acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from headwater.client.share_values import AcknowledgeType
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79
from headwater.wire.primitives import INT32_MAX

GAP = 0
"""The acknowledgement of acquired offsets that have no record: compacted away, or control records.
"""
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
RENEW_VERSION = 2
"""The first version of both requests with renewals and acquire modes (KIP-1222, KIP-1206)."""


class Place(NamedTuple):
    """A partition as the two requests name it."""

    topic_id: UUID
    partition: int


class FetchLimits(NamedTuple):
    """What one ShareFetch may bring."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    acquire_mode: int


Acknowledged = dict[Place, dict[int, int]]
"""Offset -> acknowledgement type, of each partition."""


class ShareSession:
    """The session of one member with one node."""

    def __init__(self, node_id: int, group_id: str, member_id: str) -> None:
        self.node_id = node_id
        self.epoch = INITIAL_EPOCH
        self.partitions: set[Place] = set()
        """What the broker has in the session."""
        self.waiting: Acknowledged = {}
        """Acknowledgements that are not sent yet."""
        self.gaps: dict[Place, list[tuple[int, int]]] = {}
        """Acquired offsets without records, first to last, that are not sent yet."""
        self.in_flight: Acknowledged = {}
        """Acknowledgements of the request that runs."""
        self.is_over = False
        self.is_flushing = False
        """What waits is to be sent soon."""
        self.is_fetching = False
        """The request that runs is a ShareFetch."""
        self.not_before = 0.0
        """Monotonic seconds: no request before."""
        self.failures: dict[Place, int] = {}
        """How often in a row a partition's acknowledgements failed for now."""
        self._group_id = group_id
        self._member_id = member_id

    def acknowledge(self, place: Place, offset: int, kind: int) -> None:
        """Send this with the next request."""
        self.waiting.setdefault(place, {})[offset] = kind

    @property
    def has_waiting(self) -> bool:
        """True when an acknowledgement of the caller is to be sent."""
        return bool(self.waiting)

    @property
    def needs_acknowledge(self) -> bool:
        """True when something waits that a fetch of this session cannot bring: a renewal, or a
        partition that the session has no more."""
        return any(
            place not in self.partitions or AcknowledgeType.RENEW in kinds.values()
            for place, kinds in self.waiting.items()
        )

    def fetch_request(self, wanted: Iterable[Place], limits: FetchLimits) -> k78.ShareFetchRequest:
        """The next ShareFetch, of these partitions; it brings what waits for them."""
        wanted = set(wanted)
        added = wanted - self.partitions
        gone = self.partitions - wanted
        batches: dict[Place, tuple[k78.AcknowledgementBatch, ...]] = {}
        if self.epoch != INITIAL_EPOCH:
            for place in (self.waiting.keys() | self.gaps.keys()) & self.partitions & wanted:
                batches[place] = tuple(
                    k78.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=(kind,)
                    )
                    for first, last, kind in self._take(place)
                )
        by_topic: dict[UUID, list[k78.FetchPartition]] = {}
        for place in sorted(added | batches.keys()):
            row = k78.FetchPartition(
                partition_index=place.partition,
                acknowledgement_batches=batches.get(place, ()),
            )
            by_topic.setdefault(place.topic_id, []).append(row)
        forgotten: dict[UUID, list[int]] = {}
        for place in sorted(gone):
            forgotten.setdefault(place.topic_id, []).append(place.partition)
        self.partitions = wanted
        return k78.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=limits.acquire_mode,
            is_renew_ack=False,
            topics=tuple(
                k78.FetchTopic(topic_id=t, partitions=tuple(rows)) for t, rows in by_topic.items()
            ),
            forgotten_topics_data=tuple(
                k78.ForgottenTopic(topic_id=t, partitions=tuple(rows))
                for t, rows in forgotten.items()
            ),
        )

    def acknowledge_request(self, *, close: bool = False) -> k79.ShareAcknowledgeRequest:
        """A ShareAcknowledge of all that waits; with `close` the last request of the session, which
        releases what is left."""
        by_topic: dict[UUID, list[k79.AcknowledgePartition]] = {}
        if close:  # a lock that ends with the session is not renewed
            self.waiting = {
                place: kept
                for place, kinds in self.waiting.items()
                if (kept := {o: k for o, k in kinds.items() if k != AcknowledgeType.RENEW})
            }
        for place in sorted(self.waiting.keys() | self.gaps.keys()):
            rows = tuple(
                k79.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=(kind,)
                )
                for first, last, kind in self._take(place)
            )
            by_topic.setdefault(place.topic_id, []).append(
                k79.AcknowledgePartition(
                    partition_index=place.partition, acknowledgement_batches=rows
                )
            )
        renews = any(AcknowledgeType.RENEW in kinds.values() for kinds in self.in_flight.values())
        return k79.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if close else self.epoch,
            is_renew_ack=renews,
            topics=tuple(
                k79.AcknowledgeTopic(topic_id=t, partitions=tuple(rows))
                for t, rows in by_topic.items()
            ),
        )

    def _take(self, place: Place) -> list[tuple[int, int, int]]:
        """What waits for a partition is in flight now; as (first, last, type)."""
        kinds = self.waiting.pop(place, {})
        if kinds:
            self.in_flight[place] = kinds
        gaps = [(first, last, GAP) for first, last in self.gaps.pop(place, ())]
        return sorted([*runs_of(kinds), *gaps])

    def answered(self) -> Acknowledged:
        """The request that ran was answered without an error of its own: the next epoch begins.
        What it had brought."""
        self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1
        done, self.in_flight = self.in_flight, {}
        return done

    def end(self) -> Acknowledged:
        """The session is over; all that it can no longer bring."""
        self.is_over = True
        lost = {place: dict(kinds) for place, kinds in self.in_flight.items()}
        for place, kinds in self.waiting.items():
            lost.setdefault(place, {}).update(kinds)
        self.in_flight, self.waiting, self.gaps = {}, {}, {}
        return lost


def runs_of(kinds: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Neighbouring offsets of one type as (first, last, type)."""
    runs: list[tuple[int, int, int]] = []
    for offset, kind in sorted(kinds.items()):
        if runs and runs[-1][1] + 1 == offset and runs[-1][2] == kind:
            runs[-1] = (runs[-1][0], offset, kind)
        else:
            runs.append((offset, offset, kind))
    return runs
