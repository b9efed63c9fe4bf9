"""Base of the asyncio clients as `async with` blocks: started on entry, closed on exit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Managed(ABC):
    """A client that connects in `start` and ends in `aclose`."""

    @abstractmethod
    async def start(self) -> Self:
        """Connect."""

    @abstractmethod
    async def aclose(self) -> None:
        """End it. A second call does nothing."""

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
