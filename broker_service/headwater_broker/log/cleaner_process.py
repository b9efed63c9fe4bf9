"""Runs compactions in child processes: sends a job to `cleaner_worker`, returns its result."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process

from headwater_broker.log.cleaner import CleanInterruptedError
from headwater_broker.log.cleaner_worker import decode_result, encode_job
from headwater_broker.log.compaction_job import CleanJob, CleanResult

ANSWER_BYTES_MAX = 64 << 20


class CleanerProcesses:
    """Implements `headwater_broker.log.cleaner.CleanFunction`, with a process per concurrent job.

    A process stays for the next job: starting one costs the loop some milliseconds.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._idle: list[Process] = []

    async def __call__(self, job: CleanJob) -> CleanResult:
        """Run one job. When this is cancelled the process is killed, and its files are not used."""
        process = await self._take()
        answer = b""
        try:
            answer = await _ask(process, encode_job(job) + b"\n")
        finally:
            if answer.endswith(b"\n"):
                self._idle.append(process)
            else:
                await _end(process)
        if not answer.endswith(b"\n"):
            raise CleanInterruptedError(f"the process ended with code {process.returncode}")
        try:
            return decode_result(answer)
        except ValueError as e:
            raise CleanInterruptedError(str(e)) from e

    async def close(self) -> None:
        """End the processes; no job may be running."""
        while self._idle:
            await _end(self._idle.pop())

    async def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        return await asyncio.create_subprocess_exec(
            self._python,
            "-P",  # a user's file in the working directory must not shadow a module
            "-m",
            "headwater_broker.log.cleaner_worker",
            str(os.getpid()),
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is the broker's to handle
            limit=ANSWER_BYTES_MAX,
        )


async def _ask(process: Process, line: bytes) -> bytes:
    """The line that the process answers; without its end when the process died."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line)
        await process.stdin.drain()
        return await process.stdout.readline()
    except (BrokenPipeError, ConnectionResetError):
        return b""


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
