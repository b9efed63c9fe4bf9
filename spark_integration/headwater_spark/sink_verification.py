"""Whether the brokers, a query's checkpoint, its topics and its Delta table agree. Pure.

`headwater verify-sink` collects the facts. Epoch by epoch: an epoch is in the table's history once,
none is left out, and all three have the same last one. Row by row, where a key is given: each key
is as often in the table as in the topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHOWN = 5


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What a query's checkpoint says."""

    query_id: str
    planned: int | None
    """The last micro-batch in its offset log."""
    committed: int | None
    """The last one in its commit log."""


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """What the sink's coordinator says."""

    owner: str
    last_epoch: int | None
    ticket: int
    undecided: tuple[tuple[int, str], ...] = ()
    """(epoch, state) of those that are not complete."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit of the sink in the table's history."""

    version: int
    epoch: int | None
    """None: a fence."""
    ticket: int


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the table says. `commits` are those that its history still has, the oldest first."""

    commits: tuple[TableCommit, ...]
    app_version: int | None
    """The version of the sink's app transaction: the ticket of its last commit."""


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """How often each key is in the topics and in the table."""

    topics: Mapping[object, int]
    table: Mapping[object, int]
    is_merged: bool = False
    """Rows were merged: a key is in the table once, however often it is in the topics."""


def sink_problems(sink: SinkFacts | None, checkpoint: CheckpointFacts) -> list[str]:
    """Where coordinator and checkpoint disagree."""
    if sink is None:
        if checkpoint.committed is None:
            return []
        return [f"the brokers know no such sink; the checkpoint has batch {checkpoint.committed}"]
    problems = [
        f"epoch {epoch} is {state}: the query is running, or must be started again to settle it"
        for epoch, state in sink.undecided
    ]
    if sink.owner and sink.owner != checkpoint.query_id:
        problems.append(
            f"the sink belongs to query {sink.owner}, the checkpoint to {checkpoint.query_id}"
        )
    last, committed, planned = sink.last_epoch, checkpoint.committed, checkpoint.planned
    # Spark logs a batch after its epoch; a query that ends in between repeats the batch, empty.
    if last != committed and not (last == planned and last == _next(committed)):
        problems.append(
            f"the sink's last epoch is {_text(last)}, the checkpoint's last committed batch"
            f" {_text(committed)}, its last planned one {_text(planned)}"
        )
    return problems


def table_problems(sink: SinkFacts | None, table: TableFacts) -> list[str]:
    """Where coordinator and table disagree."""
    problems = []
    epochs = [commit.epoch for commit in table.commits if commit.epoch is not None]
    twice = [epoch for epoch, times in Counter(epochs).items() if times > 1]
    if twice:
        problems.append(f"the table has {len(twice)} epochs more than once: {_some(twice)}")
    if epochs:
        absent = sorted(set(range(min(epochs), max(epochs) + 1)) - set(epochs))
        if absent:
            problems.append(f"the table's history lacks {len(absent)} epochs: {_some(absent)}")
        if epochs != sorted(epochs):
            problems.append("the table's epochs are out of order")
    last = None if sink is None else sink.last_epoch
    shown = max(epochs, default=None)
    if shown != last and (epochs or last is not None):
        problems.append(f"the sink's last epoch is {_text(last)}, the table's {_text(shown)}")
    newest = table.commits[-1].ticket if table.commits else None
    if table.app_version != newest:
        problems.append(
            f"the table's app transaction is {_text(table.app_version)}, and its history ends with"
            f" ticket {_text(newest)}"
        )
    return problems


def key_problems(counts: KeyCounts) -> list[str]:
    """Keys that topics and table do not have equally often."""
    topics, table = counts.topics, counts.table
    missing = [key for key in topics if key not in table]
    extra = [key for key in table if key not in topics]
    problems = []
    if missing:
        problems.append(f"{len(missing)} keys are in the topics only: {_some(missing)}")
    if extra:
        problems.append(f"{len(extra)} keys are in the table only: {_some(extra)}")
    common = [key for key in topics if key in table]
    if counts.is_merged:
        twice = [key for key in common if table[key] > 1]
        if twice:
            problems.append(f"{len(twice)} keys are in the table more than once: {_some(twice)}")
        return problems
    differing = [key for key in common if topics[key] != table[key]]
    if differing:
        problems.append(
            f"{len(differing)} keys are not as often in the table as in the topics:"
            f" {_some(differing)}"
        )
    return problems


def duplicate_keys(counts: Mapping[object, int]) -> list[str]:
    """A problem for keys that should be there once."""
    twice = [key for key, times in counts.items() if times > 1]
    if not twice:
        return []
    shown = f"{len(twice)} keys are in the topics more than once: {_some(twice)}"
    return [f"{shown}. Where keys may repeat, give --table and --key, or leave --topic out"]


def _next(batch: int | None) -> int:
    return 0 if batch is None else batch + 1


def _text(value: int | None) -> str:
    return "none" if value is None else str(value)


def _some(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:SHOWN])) + (", ..." if len(values) > SHOWN else "")
