"""The commonest small fetches, answered without a `DelayedFetch`.

It serves a consumer with records to read in one partition that this broker leads. The consumer
either names that partition without a session, or continues an incremental fetch session (KIP-227)
in which no other partition has anything new. This costs half of a `DelayedFetch`, which serves
followers, racks, waits, several partitions and errors. A test compares each response with that of a
`DelayedFetch`, byte for byte.
"""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater_broker.api.fetch.delayed_fetch import DelayedFetch
from headwater_broker.api.fetch.read import part_of_file, unsettled
from headwater_broker.api.fetch.request_codec import (
    FLEXIBLE,
    NONE,
    TOPIC_IDS_SINCE,
    ZSTD_SINCE,
    FetchFrame,
    PlainFetch,
    PlainPartition,
    item_of,
)
from headwater_broker.api.fetch.response_codec import (
    END_PLAIN_FLEXIBLE,
    encode_plain,
    topic_field,
)
from headwater_broker.api.fetch_session.cache import FINAL_EPOCH, NO_SESSION, FetchSession
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import Answer, FilePart, Part
from headwater_broker.replica.partition import Partition

_READ = Operation.READ
_TOPIC = ResourceType.TOPIC


def answer_plain(peer: Peer, fetch: PlainFetch, version: int, correlation_id: int) -> Answer:
    """The response; None when a `DelayedFetch` must serve the fetch: nothing is counted then."""
    _, _, _, _, session_id, epoch, rows = fetch
    if session_id != NO_SESSION:
        return _answer_in_session(peer, fetch, version, correlation_id) if epoch > 0 else None
    if epoch != FINAL_EPOCH or len(rows) != 1:
        return None
    field, topic, index, leader_epoch, offset, last_epoch, _, most = rows[0]
    replicas = peer.services.replicas
    name = topic if isinstance(topic, str) else replicas.topic_ids.get(topic, "")
    partition = replicas.partitions.get((name, index))
    if partition is None or last_epoch != NONE:
        return None
    return _answer_one(
        peer, fetch, partition, field, leader_epoch, offset, most, version, correlation_id
    )


def _answer_in_session(peer: Peer, fetch: PlainFetch, version: int, correlation_id: int) -> Answer:
    """The response in an incremental session; None when the session cannot be continued."""
    try:
        session = peer.services.sessions.continue_session(
            fetch.session_id, fetch.session_epoch, uses_topic_ids=version >= TOPIC_IDS_SINCE
        )
    except KafkaError:
        return None
    if session.dirty is not None:  # of a follower
        frame = FetchFrame.of(fetch)
        session.apply(frame.items, ())
        return DelayedFetch(peer, frame, version, correlation_id).go_on(session)
    for row in fetch.partitions:
        _update(session, row)
    items = unsettled(session, peer.session, fetch.isolation)
    if len(items) == 1:
        item = items[0]
        partition = item.located
        if partition is not None and item.last_fetched_epoch == NONE:
            answer = _answer_one(
                peer, fetch, partition, topic_field(item.topic, version),
                item.current_leader_epoch, item.fetch_offset, item.max_bytes, version,
                correlation_id,
            )  # fmt: skip
            if answer is not None:
                item.sent_high_watermark = partition.high_watermark
                item.sent_log_start = partition.log.log_start_offset
                session.rotate(item)
                return answer
    job = DelayedFetch(peer, FetchFrame.of(fetch), version, correlation_id)
    return job.go_on(session, items)


def _update(session: FetchSession, row: PlainPartition) -> None:
    """Update a partition of the session that the request names."""
    _, topic, index, leader_epoch, offset, last_epoch, log_start, most = row
    item = session.items.get((topic, index))
    if item is None:
        session.apply([item_of(row)], ())
        return
    item.fetch_offset = offset
    item.max_bytes = most
    item.current_leader_epoch = leader_epoch
    item.last_fetched_epoch = last_epoch
    item.log_start_offset = log_start


def _answer_one(
    peer: Peer,
    fetch: PlainFetch,
    partition: Partition,
    field: bytes,
    leader_epoch: int,
    offset: int,
    limit: int,
    version: int,
    correlation_id: int,
) -> bytes | list[Part] | None:
    """The response with the records of one partition; None when they are fewer than min_bytes,
    not in the page cache, or cannot be read."""
    services, name = peer.services, partition.topic
    if (
        not partition.is_leader
        or (leader_epoch != NONE and leader_epoch != partition.leader_epoch)
        or not partition.log.local_log_start_offset <= offset < partition.high_watermark
        or not peer.session.allows(_READ, _TOPIC, name)
        or (version < ZSTD_SINCE and partition.log.config.compression_type == "zstd")
    ):
        return None
    wait_ms, min_bytes, max_bytes, isolation, session_id, _, _ = fetch
    most = services.config.fetch_max_bytes
    if max_bytes < most:
        most = max_bytes
    if limit > most:
        limit = most
    try:
        part = partition.read(offset, limit, isolation)
        size = part.size_bytes
        if not size or (size < min_bytes and size < most and wait_ms > 0):
            return None
        if isolation:
            log, stable = partition.log, partition.last_stable_offset
            if log.aborted_in_slice(offset, part, stable):
                return None
        payload = part.data if part.data is not None else part_of_file(services, partition, part)
    except (KafkaError, OSError):
        return None  # the DelayedFetch reads it again and answers the error
    if payload is None:
        return None
    meter = services.meters.topics.get(name) or services.meters.topic(name)
    meter.bytes_out += size
    head = encode_plain(version, correlation_id, session_id, field, partition, isolation, size)
    if isinstance(payload, FilePart):
        return [head, payload, END_PLAIN_FLEXIBLE] if version >= FLEXIBLE else [head, payload]
    return head + payload + END_PLAIN_FLEXIBLE if version >= FLEXIBLE else head + payload
