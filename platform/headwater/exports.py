"""The names that `from headwater import ...` offers, and their modules: the client SDK.

`__init__.pyi` declares the same names for type checkers; a test compares the two.
"""

from __future__ import annotations

_MODULES = {
    "headwater.client.admin.client": ("Admin",),
    "headwater.client.consumer": ("Consumer",),
    "headwater.client.producer": ("Producer",),
    "headwater.client.futures": ("SendFuture", "TableFuture"),
    "headwater.client.values": (
        "Broker",
        "ClientQuotas",
        "ClusterDescription",
        "ConfigEntry",
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
    ),
    "headwater.client.transaction_values": (
        "HangingTransaction",
        "MarkerFailure",
        "ProducerIdAndEpoch",
        "TransactionBlocker",
        "TransactionDescription",
        "TransactionListing",
    ),
    "headwater.errors": ("ErrorCode", "HeadwaterError", "KafkaError", "UsageError"),
    "headwater.client.errors": (
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
    ),
}

EXPORTS = {name: module for module, names in _MODULES.items() for name in names}
"""Name -> the module that defines it."""
