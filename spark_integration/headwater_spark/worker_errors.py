"""Headwater's errors in a Python worker, shown to Spark's users without a traceback.

A Python worker that fails sends its traceback to the JVM, whose exception shows all of it; the
message of a HeadwaterError is its last line. Spark omits tracebacks when the worker's environment
has `SPARK_HIDE_TRACEBACK`. The variable is set while a HeadwaterError leaves the worker; errors of
other kinds are bugs and keep their traceback.
"""

from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import HeadwaterError, UsageError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class NotShippedError(UsageError, pickle.PickleError):
    """A HeadwaterError that a writer met while Spark pickled it for its tasks.

    Spark puts "Could not serialize object" before the text of any error but a PickleError."""


@contextmanager
def without_traceback() -> Iterator[None]:
    """Wraps every entry point that Spark calls in a worker."""
    try:
        yield
    except HeadwaterError as error:
        if HIDE_TRACEBACK not in os.environ:
            os.environ[HIDE_TRACEBACK] = "1"
            # The worker ends after it has sent the error. If the error is handled instead, the
            # variable goes with it.
            weakref.finalize(error, os.environ.pop, HIDE_TRACEBACK, None)
        raise


@contextmanager
def while_pickled() -> Iterator[None]:
    """Wraps the work of a `__getstate__` that Spark calls in a worker."""
    with without_traceback():
        try:
            yield
        except HeadwaterError as error:
            raise NotShippedError(str(error)) from error
