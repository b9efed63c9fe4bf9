"""Ends a transaction for `headwater transactions`; an error names the next step."""

from __future__ import annotations

from headwater.cli.partition_arguments import name_of
from headwater.client.admin.client import Admin
from headwater.client.transaction_values import ProducerIdAndEpoch, TransactionDescription
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.wire.sink_names import SINK_ID_PREFIX, is_participant

OTHER_PRODUCER = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""EndTxn's errors for a producer id or epoch that the transactional id does not have."""


def abort_in_partition(admin: Admin, tp: TopicPartition, start_offset: int) -> None:
    """WriteTxnMarkers to the partition's leader; an error of a broker of Headwater says why."""
    try:
        admin.abort_transaction(tp, first_offset=start_offset)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            raise
        text = (
            f"the broker refuses --force: the coordinator of the transaction of {name_of(tp)} from "
            f"offset {start_offset} will end it. `headwater transactions abort TRANSACTIONAL-ID` "
            "aborts it in all partitions"
        )
        raise KafkaError(error.code, text) from error


def check_own_transaction(name: str) -> None:
    """Raises UsageError for a participant of an epoch transaction: it ends with its epoch alone."""
    if not is_participant(name):
        return
    sink = name.removeprefix(SINK_ID_PREFIX).rpartition(".")[0]
    raise UsageError(
        f"{name} is a task of an epoch of sink {sink}, which ends as a whole. "
        f"`headwater sinks show {sink}` shows it: `headwater sinks commit` or `abort` ends a "
        "prepared epoch; an open one "
        "is aborted at its deadline, or at once by `headwater sinks takeover`"
    )


def end_transaction(
    admin: Admin, described: TransactionDescription, producer: ProducerIdAndEpoch, *, commit: bool
) -> None:
    """EndTxn; an error about the producer names the one that the transactional id has."""
    name = described.transactional_id
    try:
        admin.end_transaction(name, producer, commit=commit)
    except KafkaError as error:
        if error.code not in OTHER_PRODUCER:
            raise
        text = (
            f"{error.detail}: {name} is {described.state}, of producer {described.producer_id}, "
            f"epoch {described.producer_epoch}. Give the producer id and epoch of its open "
            "transaction"
        )
        raise KafkaError(error.code, text) from error
