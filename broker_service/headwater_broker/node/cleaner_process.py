"""Compactions in processes of their own: a job to `cleaner_worker`, its result back."""

from __future__ import annotations

import asyncio
import os
import sys

from headwater_broker.log.cleaner import CleanInterruptedError
from headwater_broker.log.cleaning import CleanJob, CleanResult
from headwater_broker.node.cleaner_worker import decode_result, encode_job


class CleanerProcesses:
    """`headwater_broker.log.cleaner.Work`: one process per job, ended with it."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    async def __call__(self, job: CleanJob) -> CleanResult:
        """See the type. Cancelled, it kills the process: what it wrote is not used."""
        process = await asyncio.create_subprocess_exec(
            self._python,
            "-P",  # a user's file in the working directory must not shadow a module
            "-m",
            "headwater_broker.node.cleaner_worker",
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C is the broker's to handle
        )
        try:
            told, _ = await process.communicate(encode_job(job))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0 or not told:
            raise CleanInterruptedError(f"its process ended with {process.returncode}")
        try:
            return decode_result(told)
        except (OSError, ValueError) as e:
            raise CleanInterruptedError(str(e)) from e
