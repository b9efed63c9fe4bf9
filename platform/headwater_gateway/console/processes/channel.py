"""A child process's side: requests over a socket, questions back, limits of its own."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater_tier.typed.decoding import RegisteredSchema
from headwater_tier.typed.quarantine_reasons import SchemaUnavailableError

NICENESS = 5
STATM = Path("/proc/self/statm")
OUT_OF_MEMORY = 75
"""The exit code."""
LENGTH = struct.Struct(">I")


class Channel:
    """Frames over the socket: pickled from the gateway, JSON to it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=1 << 20)

    def receive(self) -> Any:
        """The next request. Raises EOFError when the gateway has gone."""
        size = LENGTH.unpack(self._exactly(LENGTH.size))[0]
        return pickle.loads(self._exactly(size))

    def send(self, document: Mapping[str, Any]) -> None:
        """Answer."""
        data = json.dumps(document, separators=(",", ":")).encode("ascii")
        self._sock.sendall(LENGTH.pack(len(data)) + data)

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        if len(data) < size:
            raise EOFError
        return data


class AskedSchemas:
    """Schemas that the gateway looks up (`headwater_tier.typed.decoding.SchemaSource`)."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._by_id: dict[int, RegisteredSchema] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """See the port."""
        found = self._by_id.get(schema_id)
        if found is None:
            found = self._ask({"schema": schema_id})
            if found is not None:
                self._by_id[schema_id] = found
        return found

    def latest(self, subject: str) -> RegisteredSchema | None:
        """See the port."""
        return self._ask({"subject": subject})

    def _ask(self, question: Mapping[str, Any]) -> RegisteredSchema | None:
        left = signal.setitimer(signal.ITIMER_PROF, 0)[0]  # waiting is not this record's work
        self._channel.send(question)
        found, problem = self._channel.receive()
        signal.setitimer(signal.ITIMER_PROF, left)
        if problem:
            raise SchemaUnavailableError(problem)
        answer: RegisteredSchema | None = found
        return answer


def settle(memory_bytes: int) -> None:
    """Take a low priority and this much memory, on top of what the process has by now."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if STATM.exists():  # elsewhere than on Linux no one can say what the process has
        pages = int(STATM.read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
