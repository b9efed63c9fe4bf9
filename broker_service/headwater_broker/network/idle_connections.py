"""Closes connections without traffic for connections.max.idle.ms (Kafka's `IdleExpiryManager`)."""

from __future__ import annotations

from collections.abc import Iterable

from headwater_broker.network.connection_ports import AcceptedConnection

SWEEPS_PER_IDLE_TIME = 10
"""Idle sweeps within connections.max.idle.ms."""
SWEEP_MIN_S = 0.01
SWEEP_MAX_S = 10.0
NEVER_S = 2**62


class IdleConnections:
    """Finds the idle connections of one listener, sweep by sweep."""

    def __init__(self, idle_ms: int) -> None:
        """`idle_ms`: connections.max.idle.ms; negative: never."""
        idle_s = idle_ms / 1000 if idle_ms >= 0 else NEVER_S
        self.interval_s = min(max(idle_s / SWEEPS_PER_IDLE_TIME, SWEEP_MIN_S), SWEEP_MAX_S)
        """The time between two sweeps."""
        self.sweeps = max(int(idle_s / self.interval_s), 1)
        """A connection is closed when it is idle for more sweeps than these."""
        self._unsent: dict[AcceptedConnection, int] = {}
        """Bytes that were not sent at the last sweep, where there were any."""

    def sweep(self, tick: int, connections: Iterable[AcceptedConnection]) -> None:
        """Close what is idle since too long; shrink quiet buffers. `tick`: the sweep's number,
        which a connection notes when it is active."""
        for connection in connections:
            self._note_reading(tick, connection)
            age = tick - connection.last_active_tick
            if age > self.sweeps and not connection.in_flight:
                connection.close_idle()
            elif age == 1 or age == 2:
                connection.shrink_when_quiet()

    def _note_reading(self, tick: int, connection: AcceptedConnection) -> None:
        """A client that has read some of its replies since the last sweep is not idle."""
        unsent = connection.unsent_bytes
        if unsent != self._unsent.get(connection, 0):
            connection.last_active_tick = tick
        if unsent:
            self._unsent[connection] = unsent
        else:
            self._unsent.pop(connection, None)

    def forget(self, connection: AcceptedConnection) -> None:
        """A connection is gone."""
        self._unsent.pop(connection, None)
