"""Recovery of a follower whose log end the leader does not have: another start offset (KIP-405).

Two ways: the leader's range of offsets (ListOffsets), or, when the missing records are in the Delta
table only, the leader's local log start together with its producer state and leader epochs there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.control import ControlCalls
from headwater.ports.network import PeerConnection
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.control import ReplicaStateReply, ReplicaStateRequest
from headwater.wire.framing import decode_response, encode_request
from headwater_broker.log.checkpoint_files import decode_epochs, encode_epochs
from headwater_broker.replica.follower import Reaction, after_out_of_range
from headwater_broker.replica.partition import Partition

_log = logging.getLogger(__name__)

LIST_OFFSETS_VERSION = 8
"""The first version that knows EARLIEST_LOCAL."""
LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
REPLICA_STATE_TIMEOUT_MS = 10_000
_CORRELATION_ID = 0


class OutOfRangeRecovery:
    """Finds the offset where a follower goes on. One instance per broker."""

    def __init__(
        self, broker_id: int, control: ControlCalls, control_address: Callable[[int], str | None]
    ) -> None:
        self._broker_id = broker_id
        self._control = control
        self._control_address = control_address

    async def run(
        self, partition: Partition, connection: PeerConnection, react: Reaction, leader_id: int
    ) -> None:
        """Truncate or restart the log. Raises KafkaError, ConnectionError,
        ControlUnavailableError."""
        epoch = partition.leader_epoch
        if react is Reaction.START_AT_LOCAL:
            await self._start_at_local(partition, connection, leader_id)
            return
        start = await self._offset(partition, connection, EARLIEST)
        end = await self._offset(partition, connection, LATEST)
        if not _still_follows(partition, epoch):
            return
        own_end = partition.log.log_end_offset
        restart = after_out_of_range(own_end, start, end)
        _log.warning(
            "%s-%d: leader %d has offsets [%d, %d), here the log ends at %d: %s at %d",
            partition.topic,
            partition.partition,
            leader_id,
            start,
            end,
            own_end,
            "starts again" if restart.is_full else "truncated",
            restart.offset,
        )
        if not restart.is_full:
            partition.truncate_to(restart.offset)
        elif restart.offset != own_end:
            partition.restart_at(restart.offset)

    async def _start_at_local(
        self, partition: Partition, connection: PeerConnection, leader_id: int
    ) -> None:
        epoch = partition.leader_epoch
        start = await self._offset(partition, connection, EARLIEST)
        offset = await self._offset(partition, connection, EARLIEST_LOCAL)
        address = self._control_address(leader_id)
        if address is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"no control address of broker {leader_id} is known"
            )
        reply = await self._control.call(
            address,
            ReplicaStateRequest(
                topic_id=partition.topic_id, partition=partition.partition, offset=offset
            ),
            ReplicaStateReply,
            REPLICA_STATE_TIMEOUT_MS,
        )
        if reply.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode(reply.error_code),
                f"{partition.topic}-{partition.partition}: replica state at {offset} "
                f"of leader {leader_id}",
            )
        if not _still_follows(partition, epoch):
            return
        partition.restart_at(offset, min(start, offset))
        log = partition.log
        log.load_epochs(decode_epochs(bytes(reply.epoch_checkpoint)))
        log.load_producer_snapshot(bytes(reply.producer_snapshot), offset)

    async def _offset(
        self, partition: Partition, connection: PeerConnection, timestamp: int
    ) -> int:
        request = ListOffsetsRequest(
            replica_id=self._broker_id,
            topics=(
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=(
                        ListOffsetsPartition(
                            partition_index=partition.partition,
                            current_leader_epoch=partition.leader_epoch,
                            timestamp=timestamp,
                        ),
                    ),
                ),
            ),
        )
        body = encode_request(request, LIST_OFFSETS_VERSION, _CORRELATION_ID, None)
        raw = await connection.request(body)
        reply = decode_response(ListOffsetsResponse, LIST_OFFSETS_VERSION, raw, _CORRELATION_ID)
        row = reply.topics[0].partitions[0]
        if row.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode(row.error_code),
                f"{partition.topic}-{partition.partition}: ListOffsets {timestamp}",
            )
        return row.offset


def _still_follows(partition: Partition, leader_epoch: int) -> bool:
    """True while the replica follows in that epoch. A deleted one must not touch its folder: by now
    it may belong to a new topic of the same name."""
    is_hosted = not partition.offline_reason
    return is_hosted and partition.leader_epoch == leader_epoch and not partition.is_leader


def replica_state(partition: Partition, offset: int) -> ReplicaStateReply:
    """The leader's answer to ReplicaState: producer state and leader epochs at `offset`."""
    if not partition.is_leader:
        return ReplicaStateReply(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    log = partition.log
    entries = [(epoch, start) for epoch, start in log.epochs.entries if start <= offset]
    return ReplicaStateReply(
        error_code=ErrorCode.NONE,
        producer_snapshot=log.producer_snapshot_bytes(offset),
        epoch_checkpoint=encode_epochs(entries),
    )
