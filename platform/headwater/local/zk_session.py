"""Closes a dead process's ZooKeeper session: the platform's one use of kazoo.

Never by path: a restarted broker's registration is a new node with version 0 again and would be
deleted. Closing the *session* removes exactly the nodes of the dead one, in some 14 ms; when that
session has expired already, nothing happens (design/replication.md).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
RETRY_DELAY_S = 0.05
# Short, as the session that kazoo opens when the dead one has expired already must not linger.
SESSION_TIMEOUT_S = 4.0


@dataclass(frozen=True, slots=True)
class DeadSession:
    """The credentials a broker handed over while it lived."""

    session_id: int
    password: bytes


def close_session(servers: str, session: DeadSession, timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Close it; False when no ZooKeeper server answered in time (the session then expires).

    Only call this when its owner is known to be dead: a living one would lose its registration.
    """
    client = KazooClient(
        hosts=servers,
        timeout=SESSION_TIMEOUT_S,
        client_id=(session.session_id, session.password),
        connection_retry=KazooRetry(max_tries=-1, delay=RETRY_DELAY_S, backoff=1, max_jitter=0),
    )
    try:
        client.start(timeout_s)
        return True
    except (KazooTimeoutError, KazooException, OSError) as error:
        logger.warning("session %#x not closed at %s: %r", session.session_id, servers, error)
        return False
    finally:
        client.stop()  # sends the close of whatever session it holds
        client.close()
