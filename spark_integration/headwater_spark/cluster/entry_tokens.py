"""Entry tokens: by one, a broker's task gets in at the driver, once.

A token is part of the task that Spark ships. So it is worth nothing to whoever sees it later: it
admits one connection, and the next job of the broker has another one. Spark may run the task again
after its executor died; it is refused then, ends, and the driver submits the job with a new token.
"""

from __future__ import annotations

import hmac
import threading

from headwater.entropy import Entropy

TOKEN_BYTES = 16


class EntryTokens:
    """The tokens that still admit: one for each broker. Any thread may call."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._lock = threading.Lock()
        self._open: dict[int, str] = {}

    def issue(self, broker_id: int) -> str:
        """A token for the broker's next task; the one before admits no longer."""
        token = self._entropy.randbytes(TOKEN_BYTES).hex()
        with self._lock:
            self._open[broker_id] = token
        return token

    def admits(self, broker_id: object, token: object) -> bool:
        """Whether a task of this broker gets in with the token, which is used up by that."""
        with self._lock:
            wanted = self._open.get(broker_id) if isinstance(broker_id, int) else None
            if wanted is None or not isinstance(token, str):
                return False
            if not hmac.compare_digest(wanted.encode(), token.encode()):
                return False
            del self._open[broker_id]  # type: ignore[arg-type] # an int: it was found
            return True
