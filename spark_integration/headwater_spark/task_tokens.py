"""Delegation tokens for tasks (KIP-48): the driver logs in with its password, tasks with a token.

With `headwater.delegation.token=true` executors need no password: what is shipped with a split or
a writer has a token of the driver's user, which brokers let act as that user until it expires. A
driver's processes share one token, which the brokers keep for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater_spark.task_security import TaskSecurity

if TYPE_CHECKING:
    from headwater.client.admin.client import Admin
    from headwater.client.admin.tokens import DelegationToken

LEARN_S = 5.0
"""For brokers to learn of a new token. Each delays its refusal, so that trying is not busy."""
NewAdmin = Callable[[str, TaskSecurity], AbstractContextManager[Any]]


def _admin(bootstrap_servers: str, security: TaskSecurity) -> Admin:
    from headwater.client.admin.client import Admin  # noqa: PLC0415 - not for tasks
    from headwater.client.security_options import security_keywords  # noqa: PLC0415 - as above

    keywords = security_keywords(dict(security.properties))
    return Admin(bootstrap_servers, **keywords)


class TaskTokens:
    """The tokens of one process of a driver, by cluster and login. Threads may share it."""

    def __init__(self, clock: Clock | None = None, new_admin: NewAdmin = _admin) -> None:
        """`new_admin` is for tests."""
        self._clock = clock or SystemClock()
        self._new_admin = new_admin
        self._lock = threading.Lock()
        self._known: dict[tuple[str, TaskSecurity], DelegationToken] = {}

    def of(self, bootstrap_servers: str, security: TaskSecurity) -> TaskSecurity:
        """The security for tasks: that of a token, if the options ask for one.

        Raises KafkaError: DELEGATION_TOKEN_AUTH_DISABLED where brokers have no secret for tokens.
        """
        if not security.uses_tokens:
            return security
        with self._lock:
            key = bootstrap_servers, security
            token = self._known.get(key)
            if token is None or not self._is_fresh(token):
                with self._new_admin(bootstrap_servers, security) as admin:
                    token = self._known[key] = self._shared(admin, security)
        return security.with_token(token.token_id, token.password)

    def _shared(self, admin: Admin, security: TaskSecurity) -> DelegationToken:
        """A token that another process of this user had made; else a new one, which every broker
        knows."""
        if security.user is not None:
            owner = f"User:{security.user}"
            for token in admin.describe_delegation_tokens([owner]):
                mine = token.owner == token.requester == owner and not token.renewers
                if mine and self._is_fresh(token):
                    return token
        made = admin.create_delegation_token()
        as_tasks = security.with_token(made.token_id, made.password)
        for broker in admin.describe_cluster().brokers:
            self._log_in(f"{broker.host}:{broker.port}", as_tasks)
        return made

    def _log_in(self, address: str, security: TaskSecurity) -> None:
        """Return when this broker has learnt of the token. Raises its KafkaError after LEARN_S."""
        give_up_at = self._clock.monotonic() + LEARN_S
        while True:
            try:
                with self._new_admin(address, security):
                    return
            except KafkaError as error:
                is_refused = error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
                if not is_refused or self._clock.monotonic() >= give_up_at:
                    raise

    def _is_fresh(self, token: DelegationToken) -> bool:
        """True in the first half of its time: tasks that begin now have the other half."""
        half_ms = (token.issue_timestamp + token.expiry_timestamp) // 2
        return self._clock.now_ms() < half_ms


TOKENS = TaskTokens()
"""Those of this process."""
