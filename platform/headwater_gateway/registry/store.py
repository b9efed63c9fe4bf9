"""The port between requests and the topic: a state to read, commands to execute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headwater_gateway.registry.decision import Decision
from headwater_gateway.registry.state import RegistryState

Command = Callable[[RegistryState], Decision]
"""Decides by a state; raises RegistryError. It may be run again, on a newer state."""


class RegistryStore(Protocol):
    """The topic (`TopicStore`), or a double of it."""

    def state(self) -> RegistryState:
        """The state by now; nobody changes it."""
        ...

    def execute(self, command: Command) -> Any:
        """Write what the command decides, read it back, return its reply. Blocks. Raises
        RegistryError."""
        ...
