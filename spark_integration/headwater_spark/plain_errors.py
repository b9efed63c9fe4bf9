"""What Spark's users see of our errors: the message, without the worker's traceback before it.

A Python worker that fails sends its traceback to the JVM, which puts it into the exception; what we
have to say is the last line of that. Spark's own switch for the message alone is an environment
variable of the worker. It is set while one of our errors, which are made to be read, is on its way
out; errors of any other kind keep their traceback.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import HeadwaterError

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


@contextmanager
def message_alone() -> Iterator[None]:
    """Around everything of ours that Spark calls in a worker."""
    try:
        yield
    except HeadwaterError as error:
        if HIDE_TRACEBACK not in os.environ:
            os.environ[HIDE_TRACEBACK] = "1"
            # The worker ends after it has told of the error; should somebody handle it, all is as
            # it was.
            weakref.finalize(error, os.environ.pop, HIDE_TRACEBACK, None)
        raise
