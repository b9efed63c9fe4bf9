"""Output that `headwater groups` and `headwater share-groups` have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from headwater.cli.options import echo_json
from headwater.client.values import TopicPartition
from headwater.errors import EXIT_FAILED, ErrorCode, KafkaError

DEAD = "Dead"
"""The state of a group that does not exist (KIP-1043)."""


def show_described(
    documents: Sequence[dict[str, Any]],
    kind: str,
    show: Callable[[dict[str, Any]], None],
    *,
    as_json: bool,
) -> int:
    """Print the groups, of a `kind` as "share group"; the exit code, 1 when one does not exist."""
    unknown = [d["group"] for d in documents if d["state"] == DEAD]
    if as_json:
        echo_json(documents)
        return EXIT_FAILED if unknown else 0
    for document in documents:
        if document["state"] != DEAD:
            show(document)
    for name in unknown:
        click.echo(f"{kind} {name} does not exist", err=True)
    return EXIT_FAILED if unknown else 0


def show_deleted(deleted: Sequence[str], failed: Mapping[str, KafkaError], *, as_json: bool) -> int:
    """Print which groups were deleted; the exit code, 1 when one was not."""
    if as_json:
        rows = [{"group": name, "error": e.code.name, "message": e.detail}
                for name, e in failed.items()]  # fmt: skip
        echo_json({"deleted": deleted, "failed": rows})
        return EXIT_FAILED if failed else 0
    if deleted:
        click.echo(f"deleted {', '.join(deleted)}")
    for name, error in failed.items():
        click.echo(f"{name}: not deleted: {error}{hint(error)}", err=True)
    return EXIT_FAILED if failed else 0


def hint(error: KafkaError) -> str:
    """The remedy when the group has members; empty for other errors."""
    busy = error.code in (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    return ": stop its consumers first" if busy else ""


def partition_row(tp: TopicPartition, **facts: Any) -> dict[str, Any]:
    """A partition in a JSON document."""
    return {"topic": tp.topic, "partition": tp.partition, **facts}


def code_name(error: KafkaError | None) -> str | None:
    """The name of an error's code in a JSON document."""
    return None if error is None else error.code.name
