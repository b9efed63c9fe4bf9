"""The reply to one command, to be taken at once or awaited."""

from __future__ import annotations

import asyncio

from headwater.errors import KafkaError


class Reply:
    """Implements `Waiter`. A future only when it has to be awaited: where the leader has no
    followers the reply is there when the command has run."""

    __slots__ = ("_error", "_future", "_value", "is_given")

    def __init__(self) -> None:
        self.is_given = False
        self._value: object = None
        self._error: KafkaError | None = None
        self._future: asyncio.Future[None] | None = None

    def done(self) -> bool:
        """See `Waiter`: true when it is given, or who awaited it has given up."""
        return self.is_given or (self._future is not None and self._future.done())

    def set_result(self, reply: object, /) -> None:
        """See `Waiter`."""
        self._value = reply
        self.is_given = True
        if self._future is not None:
            self._wake(self._future)

    def set_exception(self, error: KafkaError, /) -> None:
        """See `Waiter`."""
        self._error = error
        self.is_given = True
        if self._future is not None:
            self._wake(self._future)

    @staticmethod
    def _wake(future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)

    def take(self) -> object:
        """The reply that is given. Raises the error that was given instead."""
        if self._error is not None:
            raise self._error
        return self._value

    async def wait(self) -> object:
        """The reply, once it is given. Raises the error that is given instead."""
        if not self.is_given:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self.take()
