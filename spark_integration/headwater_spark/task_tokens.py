"""Delegation tokens for tasks (KIP-48): the driver logs in with its password, tasks with a token.

So executors need no password: what is shipped with a split or a writer has a token of the driver's
user, which brokers let act as that user until it expires. A driver's processes share one token,
which the brokers keep for them, and renew it: a long task goes on with the one that it has. They
know it by its renewer, who is its owner; tokens that the user made otherwise are left alone. Where
brokers give no tokens, tasks log in as the driver does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.system import SystemClock
from headwater_spark.task_security import TOKENS as OPTION
from headwater_spark.task_security import TaskSecurity, Tokens

if TYPE_CHECKING:
    from headwater.client.admin.client import Admin
    from headwater.client.admin.tokens import DelegationToken

logger = logging.getLogger(__name__)

LEARN_S = 5.0
"""For brokers to learn of a new token. Each delays its refusal, so that trying is not busy."""
LOOK_EVERY_S = 60.0
"""How often the driver makes sure that the brokers still have the token."""
NO_TOKENS = frozenset(
    (
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    )
)
"""The answers of brokers that give no tokens, to this login or at all."""
NewAdmin = Callable[[str, TaskSecurity], AbstractContextManager[Any]]


def _admin(bootstrap_servers: str, security: TaskSecurity) -> Admin:
    from headwater.client.admin.client import Admin  # noqa: PLC0415 - not for tasks
    from headwater.client.security_options import security_keywords  # noqa: PLC0415 - as above

    keywords = security_keywords(security.found())
    return Admin(bootstrap_servers, **keywords)


@dataclass(frozen=True, slots=True)
class _Held:
    """The token of one login. `since_ms`: when it was made or renewed; None: brokers give none."""

    token: DelegationToken | None
    since_ms: int
    looked_s: float

    def is_due(self, now_ms: int) -> bool:
        """True in the second half of its time: tasks that begin now would not have the other."""
        token = self.token
        return token is not None and now_ms >= (self.since_ms + token.expiry_timestamp) // 2


class TaskTokens:
    """The tokens of one process of a driver, by cluster and login. Threads may share it."""

    def __init__(self, clock: Clock | None = None, new_admin: NewAdmin = _admin) -> None:
        """`new_admin` is for tests."""
        self._clock = clock or SystemClock()
        self._new_admin = new_admin
        self._lock = threading.Lock()
        self._held: dict[tuple[str, TaskSecurity], _Held] = {}

    def of(self, bootstrap_servers: str, security: TaskSecurity) -> TaskSecurity:
        """The security for tasks: that of a token, where options and brokers allow it.

        Raises KafkaError if the options insist: DELEGATION_TOKEN_AUTH_DISABLED where brokers have
        no secret for tokens.
        """
        if security.tokens is Tokens.NEVER or not self._fits(security):
            return security
        with self._lock:
            key = bootstrap_servers, security
            held = self._held.get(key)
            if held is None or self._is_stale(held):
                held = self._held[key] = self._looked(bootstrap_servers, security, held)
        token = held.token
        return security if token is None else security.with_token(token.token_id, token.password)

    def _fits(self, security: TaskSecurity) -> bool:
        """Whether a token can take the login's place. Raises UsageError if the options insist."""
        if security.uses_sasl:
            return True
        if security.tokens is Tokens.ALWAYS:
            raise UsageError(
                f"{OPTION} is true, but security.protocol is none with SASL: set it to SASL_SSL"
            )
        return False

    def _is_stale(self, held: _Held) -> bool:
        is_old = self._clock.monotonic() - held.looked_s >= LOOK_EVERY_S
        return is_old or held.is_due(self._clock.now_ms())

    def _looked(self, servers: str, security: TaskSecurity, held: _Held | None) -> _Held:
        """The token that the brokers have now for this login."""
        looked_s = self._clock.monotonic()
        try:
            with self._new_admin(servers, security) as admin:
                token, since_ms = self._current(admin, security, held)
        except KafkaError as error:
            if security.tokens is Tokens.ALWAYS or error.code not in NO_TOKENS:
                raise
            logger.info("brokers give no delegation token, tasks log in themselves: %s", error)
            return _Held(None, 0, looked_s)
        return _Held(token, since_ms, looked_s)

    def _current(
        self, admin: Admin, security: TaskSecurity, held: _Held | None
    ) -> tuple[DelegationToken, int]:
        """The token to use, and since when it is so valid: the one that is held, another one of
        this driver's processes, or a new one, which every broker knows."""
        token = self._found(admin, security, held)
        if token is not None:
            is_held = held is not None and held.token is not None
            known_since = held.since_ms if held is not None and is_held else token.issue_timestamp
            now_ms = self._clock.now_ms()
            if not _Held(token, known_since, 0).is_due(now_ms):
                return token, known_since
            if token.expiry_timestamp < token.max_timestamp:
                expiry = admin.renew_delegation_token(token.hmac)
                return replace(token, expiry_timestamp=expiry), now_ms
        return self._new(admin, security), self._clock.now_ms()

    def _found(
        self, admin: Admin, security: TaskSecurity, held: _Held | None
    ) -> DelegationToken | None:
        """The token that is held, if the brokers still have it; else another of this user."""
        owner = _owner(security)
        own_id = held.token.token_id if held is not None and held.token is not None else None
        if owner is None and own_id is None:
            return None
        tokens = admin.describe_delegation_tokens(None if owner is None else [owner])
        for token in tokens:
            if token.token_id == own_id:
                return token
        shared = [t for t in tokens if t.owner == t.requester == owner and t.renewers == (owner,)]
        return max(shared, key=lambda token: token.max_timestamp, default=None)

    def _new(self, admin: Admin, security: TaskSecurity) -> DelegationToken:
        owner = _owner(security)
        made = admin.create_delegation_token(renewers=() if owner is None else (owner,))
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


def _owner(security: TaskSecurity) -> str | None:
    """The principal of the login; None where only the broker knows it."""
    return None if security.user is None else f"User:{security.user}"


TOKENS = TaskTokens()
"""Those of this process."""
