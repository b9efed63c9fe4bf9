"""The ZooKeeper sessions that living brokers hold, kept so that the dead ones' can be closed.

They are written to `D/zookeeper/sessions.json` (readable by the owner only: the password lets
anyone close the session) as they become known, and closed at the broker's death; what a killed
supervisor left behind is closed before the next start, so that a broker never waits for its own
former registration to expire.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

from headwater.local.zk_session import DeadSession, close_session

logger = logging.getLogger(__name__)

FORMAT = 1
FILE_NAME = "sessions.json"


class BrokerSessions:
    """Session per child name. Every keeper's threads report here."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._path = folder / FILE_NAME
        self._servers = servers
        self._lock = threading.Lock()
        self._held: dict[str, DeadSession] = self._load()

    def held_by(self, name: str, told: dict[str, Any]) -> None:
        """`name` became ready, or has a new session."""
        session = _session(told)
        if session is not None:
            with self._lock:
                self._held[name] = session
                self._save()

    def close(self, name: str) -> None:
        """`name` is dead: its registration goes now. The slow part holds no lock."""
        with self._lock:
            session = self._held.get(name)
        if session is None:
            return
        if close_session(self._servers, session):
            self.forget(name)

    def forget(self, name: str) -> None:
        """`name` holds no session any more."""
        with self._lock:
            if self._held.pop(name, None) is not None:
                self._save()

    def close_leftovers(self) -> None:
        """Close all that an earlier supervisor recorded and could not close."""
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
            # Only a shortcut is lost: the sessions in it expire by themselves.
            logger.warning(
                "%s is unreadable (%r): left-over sessions will expire", self._path, error
            )
            return {}

    def _save(self) -> None:
        rows = {n: (s.session_id, s.password.hex()) for n, s in self._held.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_name(f"{FILE_NAME}.new")
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump({"format": FORMAT, "sessions": rows}, out)
        os.replace(scratch, self._path)


def _session(told: dict[str, Any]) -> DeadSession | None:
    try:
        return DeadSession(int(told["session_id"]), bytes.fromhex(told["session_password"]))
    except (KeyError, TypeError, ValueError):
        return None  # it has none, or does not say
