"""The user metadata of a sink's commits in Delta: which epoch a commit is. Imports no pyspark.

DESCRIBE HISTORY shows it: `{"headwater": {"sink": ..., "epoch": 7, "ticket": 12}}`. A fence has
no epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

METADATA_KEY = "headwater"


class CommitMetadata(NamedTuple):
    """A sink's commit."""

    sink: str
    epoch: int | None
    """None: a fence, a commit without rows that stops earlier attempts."""
    ticket: int

    def text(self) -> str:
        """As it stands in the commit."""
        return json.dumps({METADATA_KEY: self._asdict()})


def read_commit(text: str | None) -> CommitMetadata | None:
    """The metadata of a commit; None: it is of no sink."""
    try:
        row = json.loads(text or "")[METADATA_KEY]
        return CommitMetadata(str(row["sink"]), row["epoch"], int(row["ticket"]))
    except (ValueError, KeyError, TypeError):
        return None


def last_epoch(commits: Iterable[CommitMetadata]) -> int | None:
    """The epoch of a sink's newest commit that has one; `commits`: the newest first.

    Not the highest: a sink that was taken over goes on from a lower epoch.
    """
    return next((commit.epoch for commit in commits if commit.epoch is not None), None)
