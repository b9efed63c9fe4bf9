"""The gateway's side of a child process: start it, ask it, see why it ended.

Children are forked from a process that has the libraries loaded and holds no connection and no
secret (multiprocessing's fork server), so that a new one is there within milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import pickle
import signal
import socket
from collections.abc import Callable
from typing import Any

from headwater.errors import HeadwaterError, UsageError
from headwater_gateway.console.processes.channel import LENGTH, OUT_OF_MEMORY
from headwater_tier.typed.decoding import SchemaSource

END_S_MAX = 5.0
PRELOADED = (
    "headwater_gateway.console.messages.worker",
    "headwater_gateway.console.sql.sandbox",
    "headwater_gateway.console.processes.warm",
)
Target = Callable[..., None]


class ChildEndedError(HeadwaterError):
    """The process ended within a request. `exit_code` as multiprocessing has it; None: timeout."""

    def __init__(self, exit_code: int | None, cause: str) -> None:
        super().__init__(cause)
        self.exit_code = exit_code


def fork_server() -> Any:
    """The context that children are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


class ChildProcess:
    """One process and the socket to it. One request at a time."""

    def __init__(self, context: Any, target: Target, *arguments: Any) -> None:
        """`target(socket, *arguments)` is the process's life."""
        self._context = context
        self._target = target
        self._arguments = arguments
        self._process: Any = None

    async def start(self) -> None:
        """Fork it. Raises OSError, EOFError."""
        ours, theirs = socket.socketpair()
        self._process = self._context.Process(
            target=self._target, args=(theirs, *self._arguments), daemon=True
        )
        try:
            await asyncio.to_thread(self._process.start)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)

    async def ask(self, request: Any, schemas: SchemaSource, timeout_s: float) -> dict[str, Any]:
        """The answer. Raises ChildEndedError; UsageError where the child refuses the request."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(request)
                while True:
                    answer = await self._receive()
                    if "schema" not in answer and "subject" not in answer:
                        break
                    await self._send(await asyncio.to_thread(_looked_up, schemas, answer))
        except TimeoutError:
            raise ChildEndedError(None, f"it took more than {timeout_s:.0f} s") from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self._ended() from None
        if "refused" in answer:
            raise UsageError(answer["refused"])
        return answer

    async def end(self) -> None:
        """Kill it."""
        self._writer.close()
        self._process.kill()
        await asyncio.to_thread(self._process.join, END_S_MAX)

    async def _send(self, request: Any) -> None:
        data = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        self._writer.write(LENGTH.pack(len(data)))
        self._writer.write(data)
        await self._writer.drain()

    async def _receive(self) -> dict[str, Any]:
        size = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))[0]
        answer: dict[str, Any] = json.loads(await self._reader.readexactly(size))
        return answer

    async def _ended(self) -> ChildEndedError:
        await asyncio.to_thread(self._process.join, END_S_MAX)
        code = self._process.exitcode
        if code == -signal.SIGPROF:
            return ChildEndedError(code, "it took more CPU than it may")
        if code in (OUT_OF_MEMORY, -signal.SIGKILL):
            return ChildEndedError(code, "it took more memory than it may")
        return ChildEndedError(code, f"its process ended with code {code}")


def _looked_up(schemas: SchemaSource, question: dict[str, Any]) -> tuple[Any, str]:
    """(the schema or None, the problem or nothing)."""
    lookup: Callable[[Any], Any] = schemas.by_id if "schema" in question else schemas.latest
    try:
        return lookup(question.get("schema", question.get("subject"))), ""
    except HeadwaterError as error:
        return None, str(error)
