"""Secrets by reference: `env:NAME`, `file:PATH`, `databricks:SCOPE/KEY`, as values of options.

A plan, a properties file or a notebook then holds the reference, and only the process that connects
holds the secret. Errors name the option and the reference, never the secret.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater.errors import UsageError

ENVIRONMENT = "env:"
FILE = "file:"
DATABRICKS = "databricks:"
REFERENCES = (ENVIRONMENT, FILE, DATABRICKS)
"""How a reference begins; any other text is the secret itself."""
_DATABRICKS_MODULE = "databricks.sdk.runtime"


def is_reference(text: str) -> bool:
    """True when `text` names a secret instead of being one."""
    return text.strip().startswith(REFERENCES)


def is_readable_in_tasks(text: str) -> bool:
    """True for a reference that Spark's executors can follow, if their hosts have what it names."""
    return text.strip().startswith((ENVIRONMENT, FILE))


def resolved(name: str, text: str, environment: Mapping[str, str] | None = None) -> str:
    """The secret that the option `name` stands for. Raises UsageError.

    One line break at the end of a file or variable is not part of the secret.
    """
    reference = text.strip()
    if reference.startswith(ENVIRONMENT):
        variable = reference.removeprefix(ENVIRONMENT)
        found = (os.environ if environment is None else environment).get(variable)
        if found is None:
            raise UsageError(
                f"{name} is {reference!r}, but the environment of this process has no variable "
                f"{variable!r}: export it before the process starts (for Spark: its driver)"
            )
        return _without_line_break(found)
    if reference.startswith(FILE):
        return _of_file(name, reference)
    if reference.startswith(DATABRICKS):
        return _of_databricks(name, reference)
    return text


def _of_file(name: str, reference: str) -> str:
    path = Path(reference.removeprefix(FILE)).expanduser()
    try:
        return _without_line_break(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    raise UsageError(f"{name} is {reference!r}, which cannot be read: {reason}: give the path of a "
                     "file with the secret alone")  # fmt: skip


def _of_databricks(name: str, reference: str) -> str:
    scope, slash, key = reference.removeprefix(DATABRICKS).partition("/")
    if not slash or not scope or not key:
        raise UsageError(f"{name} is {reference!r}: write databricks:SCOPE/KEY")
    try:
        runtime: Any = importlib.import_module(_DATABRICKS_MODULE)
    except ImportError:
        raise UsageError(
            f"{name} is {reference!r}, but this is no Databricks runtime: use env:NAME or file:PATH"
        ) from None
    try:
        return str(runtime.dbutils.secrets.get(scope=scope, key=key))
    except Exception as error:  # noqa: BLE001 - py4j's errors have no narrower class here
        raise UsageError(
            f"{name} is {reference!r}, which Databricks refuses ({type(error).__name__}): check "
            "the scope, the key and your right to read it"
        ) from None


def _without_line_break(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
