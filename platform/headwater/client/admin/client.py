"""`Admin`: topics, configurations, offsets, groups, replicas, transactions, sinks; blocking calls.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topics([NewTopic("flights", 6, 3)])

Calls retry what can be retried for up to `default_api_timeout_ms`, then raise a typed error
(`headwater.client.errors`). Arguments are checked before anything is sent. Threads may share it.
The verbs are `AdminVerbs`, coroutines that run on the admin's own thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from headwater.client.admin.options import AdminOptions, OnWait
from headwater.client.admin.verbs import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    MAX_TRANSACTION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    AdminVerbs,
    ElectionType,
    IsolationLevel,
    ResourceType,
)
from headwater.client.cluster import Cluster
from headwater.client.config_names import keywords_of
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import checked
from headwater.client.security_options import SecurityOptions

__all__ = [
    "Admin",
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "MAX_TRANSACTION_TIMEOUT_MS",
    "TRANSACTION_TIMEOUT_MS",
    "ElectionType",
    "IsolationLevel",
    "ResourceType",
]
T = TypeVar("T")
P = ParamSpec("P")
CALL_MARGIN_S = 5.0
"""A call's own time limit ends it; the waiting thread gives up so much later."""
BOOTSTRAP_TIMEOUT_MS = 10_000


def blocking(
    verb: Callable[Concatenate[AdminVerbs, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    """A method of `Admin` that runs this verb on the admin's thread, and waits."""

    @functools.wraps(verb)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(lambda verbs: verb(verbs, *args, **kwargs))

    return call


class Admin:
    """Administers one cluster.

    Options have Kafka's names with underscores for dots; times are milliseconds.

    Raises OptionError for an unknown option or a value of a wrong type, UsageError for other bad
    values, NoBrokersAvailableError when no broker answers within `bootstrap_timeout_ms`. So do the
    methods for their arguments; those that name topics or groups take a list, not a string.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        client_id: str = "headwater-admin",
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: float = 60_000,
        retry_backoff_ms: float = 50,
        retry_backoff_max_ms: float = 1_000,
        socket_connection_setup_timeout_ms: float = 10_000,
        bootstrap_timeout_ms: float = BOOTSTRAP_TIMEOUT_MS,
        on_wait: OnWait | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        """`bootstrap_servers`: `"host:port,host:port"` or a list of such. `on_wait` is called, on
        another thread, with what a call waits for and its time limit in ms; without it the reason
        is logged. `security`: see SecurityOptions."""
        options = checked("Admin", AdminOptions, locals(), security)
        self._timeout_s = options.default_api_timeout_ms / 1000 + CALL_MARGIN_S
        self._thread = LoopThread(options.client_id or "headwater-admin")
        self._cluster = Cluster(options.bootstrap_servers, options.for_cluster())
        self._verbs = AdminVerbs(self._cluster)
        try:
            self._thread.call(
                self._cluster.bootstrap(options.bootstrap_timeout_ms), self._timeout_s
            )
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Admin:
        """An admin client of a configuration with confluent-kafka's or Kafka's names. Raises
        OptionError for a name that it does not have."""
        return cls(**keywords_of("Admin", AdminOptions, config))

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the background thread. A second call does nothing."""
        if not self._thread.loop.is_closed():
            self._thread.call(self._cluster.close(), CALL_MARGIN_S)
            self._thread.stop()

    def _run(self, verb: Callable[[AdminVerbs], Coroutine[Any, Any, T]]) -> T:
        return self._thread.call(verb(self._verbs), self._timeout_s)

    # topics
    create_topics = blocking(AdminVerbs.create_topics)
    delete_topics = blocking(AdminVerbs.delete_topics)
    try_delete_topics = blocking(AdminVerbs.try_delete_topics)
    list_topics = blocking(AdminVerbs.list_topics)
    describe_topics = blocking(AdminVerbs.describe_topics)
    create_partitions = blocking(AdminVerbs.create_partitions)
    list_offsets = blocking(AdminVerbs.list_offsets)
    delete_records = blocking(AdminVerbs.delete_records)

    # configurations, quotas, the cluster
    describe_configs = blocking(AdminVerbs.describe_configs)
    alter_configs = blocking(AdminVerbs.alter_configs)
    describe_client_quotas = blocking(AdminVerbs.describe_client_quotas)
    alter_client_quotas = blocking(AdminVerbs.alter_client_quotas)
    describe_cluster = blocking(AdminVerbs.describe_cluster)

    # groups
    list_groups = blocking(AdminVerbs.list_groups)
    describe_groups = blocking(AdminVerbs.describe_groups)
    delete_groups = blocking(AdminVerbs.delete_groups)
    try_delete_groups = blocking(AdminVerbs.try_delete_groups)
    list_group_offsets = blocking(AdminVerbs.list_group_offsets)
    list_offsets_of_groups = blocking(AdminVerbs.list_offsets_of_groups)
    alter_group_offsets = blocking(AdminVerbs.alter_group_offsets)
    delete_group_offsets = blocking(AdminVerbs.delete_group_offsets)

    # share groups
    list_share_groups = blocking(AdminVerbs.list_share_groups)
    describe_share_groups = blocking(AdminVerbs.describe_share_groups)
    list_share_group_offsets = blocking(AdminVerbs.list_share_group_offsets)
    alter_share_group_offsets = blocking(AdminVerbs.alter_share_group_offsets)
    delete_share_group_offsets = blocking(AdminVerbs.delete_share_group_offsets)

    # replicas
    elect_leaders = blocking(AdminVerbs.elect_leaders)
    alter_partition_reassignments = blocking(AdminVerbs.alter_partition_reassignments)
    list_partition_reassignments = blocking(AdminVerbs.list_partition_reassignments)
    describe_log_dirs = blocking(AdminVerbs.describe_log_dirs)
    alter_replica_log_dirs = blocking(AdminVerbs.alter_replica_log_dirs)

    # transactions
    list_transactions = blocking(AdminVerbs.list_transactions)
    describe_transactions = blocking(AdminVerbs.describe_transactions)
    describe_producers = blocking(AdminVerbs.describe_producers)
    transaction_blockers = blocking(AdminVerbs.transaction_blockers)
    find_hanging_transactions = blocking(AdminVerbs.find_hanging_transactions)
    abort_transaction = blocking(AdminVerbs.abort_transaction)
    fence_producers = blocking(AdminVerbs.fence_producers)
    end_transaction = blocking(AdminVerbs.end_transaction)

    # sinks
    list_sinks = blocking(AdminVerbs.list_sinks)
    describe_sinks = blocking(AdminVerbs.describe_sinks)
    delete_sinks = blocking(AdminVerbs.delete_sinks)
    take_over_sink = blocking(AdminVerbs.take_over_sink)
    commit_prepared_epoch = blocking(AdminVerbs.commit_prepared_epoch)
    abort_prepared_epoch = blocking(AdminVerbs.abort_prepared_epoch)

    # delegation tokens
    create_delegation_token = blocking(AdminVerbs.create_delegation_token)
    renew_delegation_token = blocking(AdminVerbs.renew_delegation_token)
    expire_delegation_token = blocking(AdminVerbs.expire_delegation_token)
    describe_delegation_tokens = blocking(AdminVerbs.describe_delegation_tokens)

    # ACLs
    create_acls = blocking(AdminVerbs.create_acls)
    describe_acls = blocking(AdminVerbs.describe_acls)
    delete_acls = blocking(AdminVerbs.delete_acls)
    topic_operations = blocking(AdminVerbs.topic_operations)
    cluster_operations = blocking(AdminVerbs.cluster_operations)

    # SCRAM users
    describe_user_scram_credentials = blocking(AdminVerbs.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(AdminVerbs.alter_user_scram_credentials)
