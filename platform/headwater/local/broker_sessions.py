"""The ZooKeeper sessions of running brokers: a dead broker's session is closed at once.

`D/zookeeper/sessions.json` holds them, readable by its owner only: with the password anyone could
close a session. A session is closed when its broker dies. Sessions of brokers that died while no
supervisor ran are closed before the next start, so that a broker never waits until its former
registration expires.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.local.zk_session import DeadSession, close_session

logger = logging.getLogger(__name__)

FORMAT = 1
FILE_NAME = "sessions.json"

CloseSession = Callable[[str, DeadSession], bool]
"""`close_session`: closes a dead process's session at these servers; False when none answered."""


class BrokerSessions:
    """The session of each broker, by the broker's name. Any thread may call."""

    def __init__(self, folder: Path, servers: str, close: CloseSession = close_session) -> None:
        self._path = folder / FILE_NAME
        self._servers = servers
        self._close_session = close
        self._lock = threading.Lock()
        self._held: dict[str, DeadSession] = self._load()

    def held_by(self, name: str, readiness: dict[str, Any]) -> None:
        """Remember the session of a broker that is ready, or that has a new session."""
        session = _session(readiness)
        if session is not None:
            with self._lock:
                self._held[name] = session
                self._save()

    def close(self, name: str) -> None:
        """Close the session of a dead broker, which removes its registration.

        The call to ZooKeeper is made without the lock.
        """
        with self._lock:
            session = self._held.get(name)
        if session is None:
            return
        if self._close_session(self._servers, session):
            self.forget(name)

    def forget(self, name: str) -> None:
        """Forget the session of a broker that has closed it itself."""
        with self._lock:
            if self._held.pop(name, None) is not None:
                self._save()

    def close_leftovers(self) -> None:
        """Close the sessions that an earlier supervisor has recorded and not closed."""
        with self._lock:
            names = list(self._held)
        for name in names:
            self.close(name)

    def _load(self) -> dict[str, DeadSession]:
        try:
            document = json.loads(self._path.read_text())
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']}, this Headwater reads {FORMAT}")
            rows = document["sessions"]
            return {n: DeadSession(i, bytes.fromhex(p)) for n, (i, p) in rows.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            # Nothing but time is lost: the sessions in the file expire.
            logger.warning(
                "%s is unreadable (%r): sessions of dead brokers must expire", self._path, error
            )
            return {}

    def _save(self) -> None:
        rows = {n: (s.session_id, s.password.hex()) for n, s in self._held.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_name(f"{FILE_NAME}.new")
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump({"format": FORMAT, "sessions": rows}, out)
        os.replace(scratch, self._path)


def _session(readiness: dict[str, Any]) -> DeadSession | None:
    try:
        session_id, password = readiness["session_id"], readiness["session_password"]
        return DeadSession(int(session_id), bytes.fromhex(password))
    except (KeyError, TypeError, ValueError):
        return None  # the report has no session
