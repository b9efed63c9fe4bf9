"""An admin of a cluster with something of everything, all names as hostile as a client can make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.client.errors import kafka_error
from headwater.client.share_group_values import (
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from headwater.client.transaction_values import (
    MarkerFailure,
    TransactionBlocker,
    TransactionDescription,
    TransactionListing,
)
from headwater.client.values import (
    ClientQuotas,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    MemberDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionReassignment,
    ProducerDescription,
    ReplicaInfo,
    TopicPartition,
)
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import AclBinding, PatternType, PermissionType
from unit.console.consoles import FakeAdmin, topic

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[0m{{7*7}}"
TP = TopicPartition("flights", 1)
ACL = AclBinding(
    ResourceType.TOPIC,
    HOSTILE,
    PatternType.PREFIXED,
    f"User:{HOSTILE}",
    "*",
    Operation.READ,
    PermissionType.ALLOW,
)
PRODUCERS = [
    ProducerDescription(7, 0, 41, 1_700_000_000_000, -1, 900),
    ProducerDescription(8, 2, -1, -1, 3, None),
]
"""Of partition 1: one with an open transaction, and one whose last batch was a marker."""
FAILURE = MarkerFailure(TP, "NOT_LEADER_OR_FOLLOWER", HOSTILE, 1_700_000_000_000, 3)


def offsets(wanted: Mapping[TopicPartition, int], **_options: Any) -> dict[Any, Any]:
    """100 for the first offset, 900 for the last stable one, 1,000 for the end, 500 for a time."""
    at = {-2: 100, -4: 300, -5: 699, -1: 1000}
    stable = 900 if _options.get("isolation_level") == "read_committed" else 1000
    known = {**at, -1: stable}
    return {tp: OffsetAndTimestamp(known.get(t, 500), -1, 1) for tp, t in wanted.items()}


def topics(names: Iterable[str] | None = None, **_options: Any) -> dict[str, Any]:
    """`flights` with three partitions, one without leader and one under-replicated topic."""
    rows = (topic("flights"), topic("lost", 1, leader=-1), topic("behind", 2, isr=(0,)))
    known = {row.name: row for row in rows}
    return known if names is None else only(known, names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def only(known: Mapping[str, Any], names: Iterable[str], code: ErrorCode) -> dict[str, Any]:
    """The named ones; the error that brokers give when there is no such."""
    missing = [name for name in names if name not in known]
    if missing:
        raise kafka_error(code, f"{missing[0]} does not exist")
    return {name: known[name] for name in names}


def config(name: str, value: str | None, **more: Any) -> ConfigEntry:
    """A config that the topic sets."""
    row = {
        "source": "DYNAMIC_TOPIC_CONFIG",
        "is_default": False,
        "read_only": False,
        "is_sensitive": False,
        "config_type": "long",
        "documentation": HOSTILE,
        "default": "604800000",
    } | more
    return ConfigEntry(name, value, **row)


CONFIGS = {
    "retention.ms": config("retention.ms", "86400000"),
    "cleanup.policy": config("cleanup.policy", HOSTILE, config_type="list"),
    "remote.storage.enable": config("remote.storage.enable", "true"),
    "sasl.jaas.config": config("sasl.jaas.config", None, is_sensitive=True),
    "log.dirs": config("log.dirs", "/data", read_only=True, is_default=True),
}


def full_admin(**answers: Any) -> FakeAdmin:
    """The admin; `answers` replace some."""
    member = MemberDescription(HOSTILE, HOSTILE, HOSTILE, HOSTILE, (TP,))
    sharer = ShareMemberDescription(HOSTILE, 3, HOSTILE, HOSTILE, None, ("flights",), (TP,))
    shared = ShareGroupDescription(HOSTILE, "Stable", 4, 4, "simple", (sharer,))
    group = GroupDescription(HOSTILE, "Stable", "consumer", HOSTILE, (member,))
    blocker = TransactionBlocker(
        "flights", 1, 900, 1000, 7, 0, 900, 1_700_000_000_000, False, 5_000, HOSTILE, "Ongoing",
        0, 60_000, 55_000, f"User:{HOSTILE}", HOSTILE, HOSTILE, FAILURE,
    )  # fmt: skip
    transaction = TransactionDescription(
        HOSTILE, 7, 3, "Ongoing", 0, 60_000, 1_000, (TP,), f"User:{HOSTILE}", HOSTILE, HOSTILE,
        2_000, (FAILURE,),
    )  # fmt: skip
    replica = {TP: ReplicaInfo(4_096, 2, False)}
    full = {
        "describe_topics": topics,
        "list_topics": ["flights"],
        "list_offsets": offsets,
        "list_groups": [GroupListing(HOSTILE, "consumer", "Stable", "classic")],
        "describe_groups": lambda names: {
            name: group if name == HOSTILE else GroupDescription(name, "Dead", "", "", ())
            for name in names
        },
        "list_group_offsets": {TP: OffsetAndMetadata(900)},
        "list_share_groups": [GroupListing(HOSTILE, "share", "Stable", "share")],
        "describe_share_groups": lambda names: {
            name: shared if name == HOSTILE else ShareGroupDescription(name, "Dead", 0, 0, "", ())
            for name in names
        },
        "list_share_group_offsets": {TP: SharePartitionOffset(900, 4, 57)},
        "describe_configs": CONFIGS,
        "describe_log_dirs": {0: [LogDirDescription(HOSTILE, None, 10**9, 10**8, replica)], 1: []},
        "list_partition_reassignments": {TP: PartitionReassignment((0, 1), (1,), (0,))},
        "transaction_blockers": [blocker],
        "describe_producers": lambda rows: {tp: PRODUCERS if tp == TP else [] for tp in rows},
        "list_transactions": [TransactionListing(HOSTILE, 7, "Ongoing", 0)],
        "describe_transactions": lambda names: only(
            {HOSTILE: transaction}, names, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        ),
        "describe_acls": [ACL],
        "describe_user_scram_credentials": {HOSTILE: {"SCRAM-SHA-512": 8192}},
        "describe_client_quotas": [
            ClientQuotas({"client-id": HOSTILE, "user": None}, {"consumer_byte_rate": 1024.0})
        ],
        "cluster_operations": frozenset({Operation.ALTER}),
    }
    return FakeAdmin(**full | answers)
