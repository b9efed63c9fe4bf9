from headwater.client.admin.client import Admin as Admin
from headwater.client.admin.tokens import DelegationToken as DelegationToken
from headwater.client.checkpoint_state import CheckpointState as CheckpointState
from headwater.client.checkpointed_producer import CheckpointedProducer as CheckpointedProducer
from headwater.client.consumer import Consumer as Consumer
from headwater.client.core.assignors import Assignor as Assignor
from headwater.client.core.assignors import Subscription as Subscription
from headwater.client.epoch_errors import EpochError as EpochError
from headwater.client.epoch_errors import EpochsUnsupportedError as EpochsUnsupportedError
from headwater.client.errors import AbortableTransactionError as AbortableTransactionError
from headwater.client.errors import AuthorizationError as AuthorizationError
from headwater.client.errors import BufferExhaustedError as BufferExhaustedError
from headwater.client.errors import ClosedError as ClosedError
from headwater.client.errors import CommitFailedError as CommitFailedError
from headwater.client.errors import CorruptRecordError as CorruptRecordError
from headwater.client.errors import FatalTransactionError as FatalTransactionError
from headwater.client.errors import GroupIdNotFoundError as GroupIdNotFoundError
from headwater.client.errors import IllegalStateError as IllegalStateError
from headwater.client.errors import InvalidConfigError as InvalidConfigError
from headwater.client.errors import InvalidGroupIdError as InvalidGroupIdError
from headwater.client.errors import InvalidPartitionsError as InvalidPartitionsError
from headwater.client.errors import InvalidReplicationFactorError as InvalidReplicationFactorError
from headwater.client.errors import InvalidTopicError as InvalidTopicError
from headwater.client.errors import KafkaTimeoutError as KafkaTimeoutError
from headwater.client.errors import LeaderNotAvailableError as LeaderNotAvailableError
from headwater.client.errors import MessageTooLargeError as MessageTooLargeError
from headwater.client.errors import NoBrokersAvailableError as NoBrokersAvailableError
from headwater.client.errors import NonEmptyGroupError as NonEmptyGroupError
from headwater.client.errors import NotEnoughReplicasError as NotEnoughReplicasError
from headwater.client.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
from headwater.client.errors import OptionError as OptionError
from headwater.client.errors import ProducerFencedError as ProducerFencedError
from headwater.client.errors import RebalanceInProgressError as RebalanceInProgressError
from headwater.client.errors import RecordDeserializationError as RecordDeserializationError
from headwater.client.errors import RetriableTransactionError as RetriableTransactionError
from headwater.client.errors import SerializationError as SerializationError
from headwater.client.errors import SerializerUnavailableError as SerializerUnavailableError
from headwater.client.errors import TopicAlreadyExistsError as TopicAlreadyExistsError
from headwater.client.errors import TransactionAbortedError as TransactionAbortedError
from headwater.client.errors import TransactionError as TransactionError
from headwater.client.errors import UnknownServerError as UnknownServerError
from headwater.client.errors import UnknownTopicOrPartitionError as UnknownTopicOrPartitionError
from headwater.client.errors import (
    UnsupportedCompressionTypeError as UnsupportedCompressionTypeError,
)
from headwater.client.futures import SendFuture as SendFuture
from headwater.client.futures import TableFuture as TableFuture
from headwater.client.interceptors import Interceptor as Interceptor
from headwater.client.interceptors import SendRecord as SendRecord
from headwater.client.prepared_transaction import PreparedTransaction as PreparedTransaction
from headwater.client.producer import Producer as Producer
from headwater.client.serializers.values import Topic as Topic
from headwater.client.share_consumer import ShareConsumer as ShareConsumer
from headwater.client.share_group_values import ShareGroupDescription as ShareGroupDescription
from headwater.client.share_group_values import ShareMemberDescription as ShareMemberDescription
from headwater.client.share_group_values import SharePartitionOffset as SharePartitionOffset
from headwater.client.share_typed_reader import ShareTypedReader as ShareTypedReader
from headwater.client.share_values import AcknowledgementResult as AcknowledgementResult
from headwater.client.share_values import AcknowledgeType as AcknowledgeType
from headwater.client.share_values import ShareConsumerStatistics as ShareConsumerStatistics
from headwater.client.share_values import ShareRecord as ShareRecord
from headwater.client.sink_values import SinkDescription as SinkDescription
from headwater.client.sink_values import SinkEpoch as SinkEpoch
from headwater.client.sink_values import SinkParticipant as SinkParticipant
from headwater.client.sink_values import SinkTakeover as SinkTakeover
from headwater.client.transaction_values import HangingTransaction as HangingTransaction
from headwater.client.transaction_values import MarkerFailure as MarkerFailure
from headwater.client.transaction_values import ProducerIdAndEpoch as ProducerIdAndEpoch
from headwater.client.transaction_values import TransactionBlocker as TransactionBlocker
from headwater.client.transaction_values import TransactionDescription as TransactionDescription
from headwater.client.transaction_values import TransactionListing as TransactionListing
from headwater.client.typed_reader import TypedReader as TypedReader
from headwater.client.typed_records import DeadLetter as DeadLetter
from headwater.client.typed_records import Raise as Raise
from headwater.client.typed_records import Skip as Skip
from headwater.client.typed_records import TypedRecord as TypedRecord
from headwater.client.values import Broker as Broker
from headwater.client.values import ClientQuotas as ClientQuotas
from headwater.client.values import ClusterDescription as ClusterDescription
from headwater.client.values import ConfigEntry as ConfigEntry
from headwater.client.values import ConsumerGroupMetadata as ConsumerGroupMetadata
from headwater.client.values import ConsumerRecord as ConsumerRecord
from headwater.client.values import ConsumerStatistics as ConsumerStatistics
from headwater.client.values import GroupDescription as GroupDescription
from headwater.client.values import GroupListing as GroupListing
from headwater.client.values import LogDirDescription as LogDirDescription
from headwater.client.values import MemberDescription as MemberDescription
from headwater.client.values import NewTopic as NewTopic
from headwater.client.values import OffsetAndMetadata as OffsetAndMetadata
from headwater.client.values import OffsetAndTimestamp as OffsetAndTimestamp
from headwater.client.values import Outage as Outage
from headwater.client.values import PartitionDescription as PartitionDescription
from headwater.client.values import PartitionReassignment as PartitionReassignment
from headwater.client.values import PartitionStatistics as PartitionStatistics
from headwater.client.values import ProducerDescription as ProducerDescription
from headwater.client.values import ProducerStatistics as ProducerStatistics
from headwater.client.values import RecordMetadata as RecordMetadata
from headwater.client.values import ReplicaInfo as ReplicaInfo
from headwater.client.values import SendSummary as SendSummary
from headwater.client.values import TopicDescription as TopicDescription
from headwater.client.values import TopicPartition as TopicPartition
from headwater.client.values import Unacked as Unacked
from headwater.errors import ErrorCode as ErrorCode
from headwater.errors import HeadwaterError as HeadwaterError
from headwater.errors import KafkaError as KafkaError
from headwater.errors import UsageError as UsageError

__version__: str
__all__ = [
    "Admin",
    "CheckpointState",
    "CheckpointedProducer",
    "Consumer",
    "PreparedTransaction",
    "Producer",
    "SendFuture",
    "SinkDescription",
    "SinkEpoch",
    "SinkParticipant",
    "SinkTakeover",
    "TableFuture",
    "Broker",
    "ClientQuotas",
    "ClusterDescription",
    "ConfigEntry",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerStatistics",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Outage",
    "PartitionDescription",
    "PartitionReassignment",
    "PartitionStatistics",
    "ProducerDescription",
    "ProducerStatistics",
    "RecordMetadata",
    "ReplicaInfo",
    "SendSummary",
    "TopicDescription",
    "TopicPartition",
    "Unacked",
    "HangingTransaction",
    "MarkerFailure",
    "ProducerIdAndEpoch",
    "TransactionBlocker",
    "TransactionDescription",
    "TransactionListing",
    "EpochError",
    "EpochsUnsupportedError",
    "DelegationToken",
    "ErrorCode",
    "HeadwaterError",
    "KafkaError",
    "UsageError",
    "AuthorizationError",
    "BufferExhaustedError",
    "ClosedError",
    "CommitFailedError",
    "CorruptRecordError",
    "GroupIdNotFoundError",
    "IllegalStateError",
    "InvalidConfigError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidReplicationFactorError",
    "InvalidTopicError",
    "KafkaTimeoutError",
    "LeaderNotAvailableError",
    "MessageTooLargeError",
    "NoBrokersAvailableError",
    "NonEmptyGroupError",
    "NotEnoughReplicasError",
    "OffsetOutOfRangeError",
    "OptionError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "TopicAlreadyExistsError",
    "UnknownServerError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "AbortableTransactionError",
    "FatalTransactionError",
    "RetriableTransactionError",
    "TransactionAbortedError",
    "TransactionError",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "ShareTypedReader",
    "AcknowledgeType",
    "AcknowledgementResult",
    "ShareConsumerStatistics",
    "ShareRecord",
    "Assignor",
    "Subscription",
    "Interceptor",
    "SendRecord",
    "Topic",
    "TypedReader",
    "DeadLetter",
    "Raise",
    "Skip",
    "TypedRecord",
    "RecordDeserializationError",
    "SerializationError",
    "SerializerUnavailableError",
    "__version__",
]
